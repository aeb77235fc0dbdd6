// What every module of the console stands on: Preact, its hooks, and html`…` for templates. Values in templates become text, attributes or
// properties, never markup, so that names, labels, logs and payloads are shown as what they are.
import { Component, h } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export { h, render, Fragment, createContext } from '../vendor/preact.js';
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useContext, useReducer } from '../vendor/hooks.js';
export const html = htm.bind(h);

/** memo is a component that is drawn again only when is(props), a text of all that it shows, has changed, or its own state. */
export const memo = (inner, is) => class extends Component {
  shouldComponentUpdate(next) { return is(next) !== is(this.props); }

  render(props) { return h(inner, props); }
};

/** classes joins names of classes and leaves out what is falsy. */
export const classes = (...names) => names.filter(Boolean).join(' ');
