// The shared worker, or a part of the page in a browser that has none: one stream of changes and one of logs for all tabs of this browser, because a browser opens only six connections to a server over HTTP/1.1. A tab says
// {hello: {since, counts}} when it begins: since when, as Date.now(), it has loaded things, or 0, and an answer of /v1/counts that is older than these, if it has one; "bye" when it goes, "again" when somebody has signed in or out, and {follow} or {leave} with the key of a task for its log; the streams are closed when nobody is left.
import { Logs, Stream } from './stream.js';

const ports = new Map(); // to the logs that each follows
let stream;
let last = 0; // when changes were told

function tell(message) {
  if (message.type === 'changes' || message.type === 'reset') last = Date.now();
  for (const [p, follows] of ports) {
    if (message.type !== 'log' || follows.has(message.key)) p.postMessage(message);
    if (message.state === 'refused') follows.delete(message.key);
  }
}

const logs = new Logs(tell);
const begin = (counts) => new Stream(tell, () => logs.lost(), counts); // of logs nothing comes while nothing is written

function leave(key) {
  if (![...ports.values()].some((follows) => follows.has(key))) logs.leave(key);
}

function gone(port) {
  const follows = ports.get(port) || [];
  ports.delete(port);
  for (const key of follows) leave(key);
  if (ports.size === 0) { stream?.close(); stream = undefined; }
}

self.onconnect = (e) => {
  const port = e.ports[0];
  port.onmessage = ({ data }) => {
    if (data === 'bye') { gone(port); return; }
    if (!ports.has(port)) ports.set(port, new Set());
    if (data.follow) { ports.get(port).add(data.follow); logs.follow(data.follow); return; }
    if (data.leave) { if (ports.get(port).delete(data.leave)) leave(data.leave); return; }
    if (data === 'again' && stream) { // somebody else looks now
      stream.close();
      stream = begin();
      logs.later(0);
      return;
    }
    if (!stream) stream = begin(data.hello?.counts);
    else {
      port.postMessage({ type: 'state', state: stream.state });
      if (data.hello?.since <= last) port.postMessage({ type: 'reset' }); // the others were told what it has not, perhaps
    }
    if (data === 'now' && stream.state !== 'live') stream.later(0);
  };
};
