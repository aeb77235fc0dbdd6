// Icons, drawn here so that none is loaded: Icon({name, label}). Without a label an icon is decoration and is hidden from screen readers.
import { html } from './base.js';

const paths = {
  home: 'M3 11l9-7 9 7M5 9.5V20h5v-6h4v6h5V9.5',
  machine: 'M6 4.5a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM6 15.5a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM18 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4zM6 8.5v7M8 6.5h2.5a3 3 0 0 1 3 3c0 1.7 1 2.5 2.5 2.5M8 17.5h2.5a3 3 0 0 0 3-3',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16.2 16.2L21 21',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6L6 18',
  pause: 'M9 6v12M15 6v12',
  play: 'M8 5l11 7-11 7z',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  alert: 'M12 4L2.5 20h19zM12 10v4.5M12 17.4v.1',
  clock: 'M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM12 7.5V12l3 2',
  spin: 'M12 3.5a8.5 8.5 0 1 0 8.5 8.5',
  ended: 'M7 7h10v10H7z',
  steady: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z',
  system: 'M3.5 5h17v11h-17zM9 20h6M12 16v4',
  out: 'M14 4h6v6M20 4l-9 9M18 14v6H4V6h6',
  right: 'M9 5l7 7-7 7',
  down: 'M5 9l7 7 7-7',
  left: 'M15 5l-7 7 7 7',
  node: 'M4 5h16v6H4zM4 13h16v6H4zM7.5 8h.01M7.5 16h.01',
  letter: 'M3.5 6h17v12h-17zM3.5 7l8.5 6 8.5-6',
  service: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9',
  task: 'M9 6h11M9 12h11M9 18h11M4 6l1 1 1.5-2M4 12l1 1 1.5-2M4 18l1 1 1.5-2',
  tenant: 'M4 21V8l8-5 8 5v13M9 21v-6h6v6M9 10h.01M15 10h.01',
  batch: 'M12 3l9 5-9 5-9-5zM3 12l9 5 9-5M3 16l9 5 9-5',
  outbox: 'M4 13v6h16v-6M12 14V4M8 8l4-4 4 4',
  stream: 'M3 7c3-3 6 3 9 0s6 3 9 0M3 12c3-3 6 3 9 0s6 3 9 0M3 17c3-3 6 3 9 0s6 3 9 0',
  worker: 'M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM12 3v3M12 18v3M3 12h3M18 12h3M5.6 5.6l2.1 2.1M16.3 16.3l2.1 2.1M5.6 18.4l2.1-2.1M16.3 7.7l2.1-2.1',
  user: 'M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4.5 20.5c1-4 4-5.5 7.5-5.5s6.5 1.5 7.5 5.5',
  help: 'M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.1M12 2.8a9.2 9.2 0 1 0 0 18.4 9.2 9.2 0 0 0 0-18.4z',
  star: 'M12 3.5l2.6 5.6 6 .7-4.5 4.1 1.3 6L12 16.9 6.6 19.9l1.3-6L3.4 9.8l6-.7z',
  filter: 'M4 5h16l-6.5 7.5V19l-3-1.5v-5z',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  swap: 'M4 8h14l-3.5-3.5M20 16H6l3.5 3.5',
};

export function Icon({ name, label, class: cls = '' }) {
  const a11y = label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': 'true' };
  return html`<svg class=${'icon icon-' + name + ' ' + cls} viewBox="0 0 24 24" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"
    stroke-linejoin="round" ...${a11y}><path d=${paths[name] || paths.more} /></svg>`;
}
