/** Which page is shown: the part of the address after `#/`, so that the service needs to know of one page only. */
import { signal } from "./signal";

const words = (): string[] =>
  decodeURI(location.hash.replace(/^#\/?/, "").split("?")[0] ?? "")
    .split("/")
    .filter(Boolean);

/** `["node", "n1"]`. */
export const route = signal(words());

window.addEventListener("hashchange", () => route.set(words()));

export const nodePath = (name: string): string => `#/node/${encodeURIComponent(name)}`;

/** What follows `?` in the address. */
export function asked(name: string): string {
  return new URLSearchParams(location.hash.split("?")[1] ?? "").get(name) ?? "";
}
