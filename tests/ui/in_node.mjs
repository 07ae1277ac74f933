// The client in Node, on the `ws` package: converses until it is told on standard input to end, then prints
// what it has as JSON.
//
//     node in_node.mjs WS_URL MODEL

import { createRequire } from "node:module";

import { connect } from "../../server/ui/turnwire.js";

const WebSocket = createRequire(`${process.env.TURNWIRE_TEST_NODE_MODULES}/`)("ws");
const [url, model] = process.argv.slice(2);

const conversation = connect(url, {
  createSocket: (address) => new WebSocket(address, "turnwire.v1"),
  baseMs: 20,
  capMs: 200,
});
let goOn = true;
process.stdin.once("data", () => (goOn = false));
while (goOn) {
  await conversation.append("And in Node?");
  await conversation.complete({ model });
}
const { messages } = conversation.view;
conversation.close();
process.stdin.destroy();
console.log(JSON.stringify(messages));
