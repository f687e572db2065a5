// Follows a cluster through one of its silos: node follow.mjs http://127.0.0.1:9700
const answer = await fetch(process.argv[2] + "/api/v1/events");
let rest = "";
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines.filter((line) => line.startsWith("data: "))) {
    for (const silo of JSON.parse(line.slice(6)).members ?? []) {
      console.log(silo.silo, silo.status);
    }
  }
}
