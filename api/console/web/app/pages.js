// The pages: routes has an address for each, with the module that draws it, loaded when it is needed. A module exports default a component, which gets {params}. nav is
// what the side shows: an entry is there when its machine is (machine), when the API has a path (always), or when the reader may (role).
// To add a page: a module in pages/, a row in routes, and one in nav if it has a place of its own there.

export const routes = [
  ['/ui', () => import('../pages/home.js')],
  ['/ui/machines', () => import('../pages/machines.js')],
  ['/ui/machines/{machine}', () => import('../pages/machine.js')],
  ['/ui/entities/{machine}/{id}', () => import('../pages/entity.js')],
  ['/ui/entities/{machine}/{parent}/{id}', () => import('../pages/entity.js')],
];

export const nav = [
  { href: '/ui/', text: 'Home', icon: 'home', key: 'h' },
  { href: '/ui/machines', text: 'Machines', icon: 'machine', key: 'm' },
];
