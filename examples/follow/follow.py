"""Follows a cluster through one of its silos: python3 follow.py http://127.0.0.1:9700"""
import json, sys, urllib.request

version, known = 0, {}
while True:
    with urllib.request.urlopen(f"{sys.argv[1]}/api/v1/view?wait={version}") as answer:
        view = json.load(answer)
    for silo in view["members"]:
        if known.get(silo["silo"]) != silo["status"]:
            print(silo["silo"], silo["status"], flush=True)
            known[silo["silo"]] = silo["status"]
    version = view["version"]
