// The shared worker: one stream for all tabs of this browser, because a browser opens only six connections to a server over HTTP/1.1. A tab says
// "hello" when it begins, "bye" when it goes, and "again" when somebody has signed in or out; the stream is closed when none is left.
import { Stream } from './stream.js';

const ports = new Set();
let stream;

function tell(message) {
  for (const p of ports) p.postMessage(message);
}

self.onconnect = (e) => {
  const port = e.ports[0];
  port.onmessage = ({ data }) => {
    if (data === 'bye') {
      ports.delete(port);
      if (ports.size === 0) { stream?.close(); stream = undefined; }
      return;
    }
    ports.add(port);
    if (data === 'again' && stream) { // somebody else looks now
      stream.close();
      stream = new Stream(tell);
      tell({ type: 'reset' });
      return;
    }
    if (!stream) stream = new Stream(tell);
    else port.postMessage({ type: 'state', state: stream.state });
    if (data === 'now' && stream.state !== 'live') stream.later(0);
  };
};
