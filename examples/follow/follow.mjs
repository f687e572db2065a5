// Follows a cluster through its silos: node follow.mjs http://127.0.0.1:9700 http://127.0.0.1:9701
const urls = process.argv.slice(2);
const known = new Map();

async function follow(url) {
  const answer = await fetch(url + "/api/v1/events");
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  let rest = "";
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((line) => line.startsWith("data: "))) {
      for (const { silo, status } of JSON.parse(line.slice(6)).members ?? []) {
        if (known.get(silo) !== status) console.log(silo, status);
        known.set(silo, status);
      }
    }
  }
  throw new Error("the stream ended");
}

for (let turn = 0; urls.length > 0; turn++) {
  const url = urls[turn % urls.length];
  // It is gone, or still joining.
  await follow(url).catch((error) => console.error(`${url}: ${error.cause ?? error}; asking the next one`));
  await new Promise((resolve) => setTimeout(resolve, 1000));
}
