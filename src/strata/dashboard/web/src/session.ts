/** Who looks: the token of this tab, or the sign-in at the provider, and what whoever it is may do. */
import { signal } from "./signal";

const KEY = "strata-token";

/** What `GET /v1/auth/whoami` says. */
export interface Who {
  name: string;
  role: string;
  scope: string[];
  rights: string[];
}

/** Whoever is signed in; null: nobody. */
export const who = signal<Who | null>(null);

/** What the service gives for a sign-in at the provider. */
export interface Login {
  token: string;
  renewal: string;
  until: number;
}

/** In memory alone: whoever loads the page anew goes by the provider, which knows them still. */
let login: Login | null = null;

/** The bearer token of this tab; empty: there is none, and a certificate may speak for us. */
export function token(): string {
  return login?.token ?? sessionStorage.getItem(KEY) ?? "";
}

export function keepLogin(given: Login): void {
  login = given;
}

/** What the sign-in is renewed by; empty: by nothing. */
export function renewal(): string {
  return login?.renewal ?? "";
}

export function keepToken(text: string): void {
  sessionStorage.setItem(KEY, text);
}

export function signOut(): void {
  login = null;
  sessionStorage.removeItem(KEY);
  who.set(null);
}

/** Whether whoever is signed in may do this (`change desire`). The service asks again; this only spares a button. */
export function may(right: string): boolean {
  return who.value?.rights.includes(right) ?? false;
}
