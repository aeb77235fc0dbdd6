// The pages: routes has an address for each, with the module that draws it, loaded when it is needed. A module exports default a component, which gets {params}. nav is
// what the side shows: an entry with a machine, or several, is there when the server has one of them (isThere). Whether the reader may see it, the page says.
// To add a page: a module in pages/, a row in routes, one in nav if it has a place of its own there, and its address in lists if it is one.
import { match } from './router.js';

export const routes = [
  ['/ui', () => import('../pages/home.js')],
  ['/ui/machines', () => import('../pages/machines.js')],
  ['/ui/machines/{machine}', () => import('../pages/machine.js')],
  ['/ui/entities/{machine}/{id}', () => import('../pages/entity.js')],
  ['/ui/entities/{machine}/{parent}/{id}', () => import('../pages/entity.js')],
  ['/ui/services', () => import('../pages/revisions.js')],
  ['/ui/discovery', () => import('../pages/discovery.js')],
  ['/ui/discovery/{service}', () => import('../pages/discovered.js')],
  ['/ui/tasks', () => import('../pages/tasks.js')],
  ['/ui/tasks/{repository}/{id}', () => import('../pages/log.js')],
  ['/ui/outbox', () => import('../pages/outbox.js')],
  ['/ui/tenants', () => import('../pages/tenants.js')],
  ['/ui/tenants/{machine}/{tenant}/{id}', () => import('../pages/session.js')],
  ['/ui/operations', () => import('../pages/operations.js')],
  ['/ui/operations/{operation}', () => import('../pages/operation.js')],
  ['/ui/nodes', () => import('../pages/nodes.js')],
  ['/ui/workers', () => import('../pages/workers.js')],
  ['/ui/dead-letters', () => import('../pages/letters.js')],
  ['/ui/streams', () => import('../pages/streams.js')],
];

export const nav = [
  { href: '/ui/', text: 'Home', icon: 'home', key: 'h' },
  { href: '/ui/machines', text: 'Machines', icon: 'machine', key: 'm' },
  { href: '/ui/services', text: 'Services', icon: 'swap', key: 'v', machine: ['service'] },
  { href: '/ui/discovery', text: 'Discovery', icon: 'service', key: 'd', machine: ['instance'] },
  { href: '/ui/tasks', text: 'Tasks', icon: 'task', key: 't', machine: ['task'] },
  { href: '/ui/outbox', text: 'Outbox', icon: 'outbox', key: 'o', machine: ['relay'] },
  { href: '/ui/tenants', text: 'Tenants', icon: 'tenant', key: 'p', machine: ['database_provisioning', 'instance_provisioning'] },
  { href: '/ui/operations', text: 'Batches', icon: 'batch', key: 'b' },
  { href: '/ui/nodes', text: 'Nodes', icon: 'node', key: 'n' },
  { href: '/ui/workers', text: 'Workers', icon: 'worker', key: 'w' },
  { href: '/ui/dead-letters', text: 'Dead letters', icon: 'letter', key: 'l' },
  { href: '/ui/streams', text: 'Streams', icon: 'stream', key: 's' },
];

/** isThere reports whether an entry of nav is shown where these machines are. */
export const isThere = (entry, machines) => !entry.machine || !!machines?.some((m) => entry.machine.includes(m.name));

const lists = ['/ui/machines/{machine}', '/ui/services', '/ui/discovery', '/ui/tasks', '/ui/tenants', '/ui/operations'];

/** isList says whether a page is a list, whose address has the namespace: in that of an entity it is a part of the name. */
export const isList = (path) => lists.some((pattern) => match(pattern, path));
