/** Who looks: the token of this tab, and what whoever it is may do. */
import { signal } from "./signal";

const KEY = "strata-token";

/** What `GET /v1/auth/whoami` says. */
export interface Who {
  name: string;
  role: string;
  scope: string[];
  via: string;
  rights: string[];
}

/** Whoever is signed in; null: nobody. */
export const who = signal<Who | null>(null);

/** The bearer token of this tab; empty: there is none, and a certificate may speak for us. */
export function token(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export function keepToken(text: string): void {
  sessionStorage.setItem(KEY, text);
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  who.set(null);
}

/** Whether whoever is signed in may do this (`change desire`). The service asks again; this only spares a button. */
export function may(right: string): boolean {
  return who.value?.rights.includes(right) ?? false;
}
