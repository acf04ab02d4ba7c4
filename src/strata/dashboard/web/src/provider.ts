/** Signing in at the site's identity provider: authorisation code with PKCE. The service redeems the code; tokens stay in memory. */
import { Problem, act, get } from "./api";
import { keepLogin, renewal, type Login } from "./session";

/** What `GET /v1/auth/oidc` says. */
export interface Way {
  issuer: string;
  client: string;
  /** Where a browser is sent; empty: the provider has not been heard yet. */
  authorize: string;
}

/** What this tab remembers of a sign-in that is under way, and forgets when it comes back. */
interface Begun {
  state: string;
  nonce: string;
  verifier: string;
  /** The page that was asked for. */
  hash: string;
}

const KEY = "strata-sign-in";
const back = (): string => `${location.origin}/`;
const url64 = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
const random = (): string => url64(crypto.getRandomValues(new Uint8Array(32)));

/** How people sign in here; null: there is no provider. */
export async function providerWay(): Promise<Way | null> {
  return get<Way>("/v1/auth/oidc").catch(() => null);
}

/** Leave for the provider. */
export async function leave(way: Way): Promise<void> {
  const begun: Begun = { state: random(), nonce: random(), verifier: random(), hash: location.hash };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(begun.verifier));
  sessionStorage.setItem(KEY, JSON.stringify(begun));
  const there = new URL(way.authorize);
  const asked = {
    response_type: "code",
    client_id: way.client,
    redirect_uri: back(),
    scope: "openid profile email",
    state: begun.state,
    nonce: begun.nonce,
    code_challenge: url64(new Uint8Array(digest)),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(asked)) there.searchParams.set(name, value);
  location.assign(there);
}

/** Whoever comes back from the provider: true where a sign-in of this tab was redeemed. Nothing else in the address is believed. */
export async function comeBack(): Promise<boolean> {
  const told = new URLSearchParams(location.search);
  if (!told.has("state") && !told.has("error")) return false;
  const kept = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  const begun = kept ? (JSON.parse(kept) as Begun) : null;
  // A code is of one use, but it need not stay in the address and the history.
  history.replaceState(null, "", back());
  if (begun?.hash.startsWith("#/")) location.replace(begun.hash);
  // Some providers that refuse send no state back; with another state than ours it is of somebody else's making.
  const ours = told.get("state") ?? begun?.state;
  if (!begun || ours !== begun.state) throw new Problem(0, "this tab did not begin this sign-in", "sign in again");
  const code = told.has("state") ? told.get("code") : null;
  if (!code) throw new Problem(0, "the provider did not sign you in", "sign in again, or ask whoever runs the provider");
  const { nonce, verifier } = begun;
  keep(await act<Login>("POST", "/v1/auth/oidc/code", { code, verifier, nonce, redirect: back() }));
  return true;
}

/** Seconds after which a renewal that failed is tried again. */
const AGAIN = 15;
let timer = 0;

function keep(login: Login): void {
  keepLogin(login);
  if (!login.renewal) return;
  const left = login.until - Date.now() / 1000;
  later(Math.max(left * 0.8, 1));
}

function later(seconds: number): void {
  window.clearTimeout(timer);
  timer = window.setTimeout(() => void renew(), Math.min(seconds * 1000, 2 ** 31 - 1));
}

async function renew(): Promise<void> {
  const old = renewal();
  if (!old) return;
  try {
    keep(await act<Login>("POST", "/v1/auth/oidc/renewal", { renewal: old }));
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 401) later(AGAIN);
  }
}
