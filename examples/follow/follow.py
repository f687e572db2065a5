"""Follows a cluster through its silos: python3 follow.py http://127.0.0.1:9700 http://127.0.0.1:9701"""
import http.client, itertools, json, sys, time, urllib.request

known = {}
for url in itertools.cycle(sys.argv[1:]):
    version = 0
    try:
        while True:
            with urllib.request.urlopen(f"{url}/api/v1/view?wait={version}&timeout=30s", timeout=40) as answer:
                view = json.load(answer)
            for silo in view["members"]:
                if known.get(silo["silo"]) != silo["status"]:
                    print(silo["silo"], silo["status"], flush=True)
                    known[silo["silo"]] = silo["status"]
            version = view["version"]
    except (OSError, http.client.HTTPException) as error:  # it is gone, or still joining
        print(f"{url}: {error}; asking the next one", file=sys.stderr)
        time.sleep(1)
