// Perfetto's own trace processor, as its page in the browser has it (WebAssembly), fed by node instead of a page:
// node engine.js FOLDER REQUESTS > REPLIES. Both are streams of the messages of its trace_processor.proto.
const fs = require("node:fs"), path = require("node:path"), vm = require("node:vm");
const [folder, requests] = process.argv.slice(2);
class Request {  // what the bundle loads its WebAssembly with
  open(_method, file) { this.file = file; }
  send() { this.response = new Bytes(fs.readFileSync(path.join(folder, path.basename(this.file)))).buffer; this.status = 200; if (this.onload) this.onload(); }
}
const file = path.join(folder, "engine_bundle.js");
const self = {location: {href: `file://${file}`}, onmessage: null, importScripts() {}};
const quiet = {log() {}, warn(words) { process.stderr.write(`${words}\n`); }, error(words) { process.stderr.write(`${words}\n`); }};
const world = vm.createContext({self, location: self.location, XMLHttpRequest: Request, console: quiet, URL,
  TextDecoder, TextEncoder, performance, setTimeout, clearTimeout, queueMicrotask, importScripts: self.importScripts,
  WorkerGlobalScope: class {}, crypto: globalThis.crypto});
const Bytes = vm.runInContext("Uint8Array", world);  // of its own world: it asks what things are instances of
vm.runInContext(fs.readFileSync(file, "utf8"), world);
const port = {postMessage(reply) { fs.writeSync(1, Buffer.from(reply)); }};
self.onmessage({data: port});
const waiting = setInterval(() => {
  try { port.onmessage({data: new Bytes(fs.readFileSync(requests))}); }
  catch (error) {  // until the WebAssembly is there
    if (!/reading '|undefined|not.*ready/.test(`${error}`) || waiting.tries++ > 100) { process.stderr.write(`${error.stack}\n`); process.exit(1); }
    return;
  }
  clearInterval(waiting);
}, 100);
waiting.tries = 0;
