// SPDX-License-Identifier: Apache-2.0
import {readFileSync, writeFileSync} from "node:fs";

/** A localStorage that is a file, so that another tab is another process. */
export function storageIn(file) {
  const all = () => new Map(JSON.parse(readFileSync(file, {encoding: "utf8", flag: "a+"}) || "[]"));
  const change = (act) => {
    const items = all();
    act(items);
    writeFileSync(file, JSON.stringify([...items]));
  };
  return {
    get length() { return all().size; },
    key: (i) => [...all().keys()][i] ?? null,
    getItem: (name) => all().get(name) ?? null,
    setItem: (name, value) => change((items) => items.set(name, value)),
    removeItem: (name) => change((items) => items.delete(name)),
  };
}
