// The shared worker, or a part of the page in a browser that has none: one stream of changes and one of logs for all tabs of this browser, because a browser opens only six connections to a server over HTTP/1.1. A tab says
// "hello" when it begins, "bye" when it goes, "again" when somebody has signed in or out, and {follow} or {leave} with the key of a task for its log; the streams are closed when nobody is left.
import { Logs, Stream } from './stream.js';

const ports = new Map(); // to the logs that each follows
let stream;

function tell(message) {
  for (const [p, follows] of ports) {
    if (message.type !== 'log' || follows.has(message.key)) p.postMessage(message);
    if (message.state === 'refused') follows.delete(message.key);
  }
}

const logs = new Logs(tell);
const begin = () => new Stream(tell, () => logs.lost()); // of logs nothing comes while nothing is written

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
      tell({ type: 'reset' });
      return;
    }
    if (!stream) stream = begin();
    else port.postMessage({ type: 'state', state: stream.state });
    if (data === 'now' && stream.state !== 'live') stream.later(0);
  };
};
