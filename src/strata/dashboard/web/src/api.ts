/** The public API: requests, streams and errors. Knows nothing of what is asked. */
import { token, signOut } from "./session";

/** What the service says when it does not do what it was asked. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly hint: string,
  ) {
    super(detail);
  }
}

type Query = Record<string, string | number | boolean | undefined>;

function address(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return path + (given.length ? "?" + new URLSearchParams(given.map(([key, value]) => [key, String(value)])) : "");
}

async function send(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token()) headers.set("Authorization", `Bearer ${token()}`);
  let reply: Response;
  try {
    reply = await fetch(path, { ...init, headers, cache: "no-store" });
  } catch {
    if (init.signal?.aborted) throw new Problem(0, "no longer wanted", "");
    throw new Problem(0, "the service does not answer", "is it running, and is the network up?");
  }
  if (reply.ok) return reply;
  const said = await reply.json().catch(() => ({}));
  if (reply.status === 401) signOut();
  const where = said.where ? ` (${said.where})` : "";
  throw new Problem(reply.status, `${said.detail ?? `HTTP ${reply.status}`}${where}`, said.hint ?? "");
}

/** The answer to a question. */
export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return (await send(address(path, query), { signal: signal ?? null })).json();
}

/** Have something done; what came of it. */
export async function act<T>(method: "POST" | "PUT" | "DELETE", path: string, body?: unknown, query?: Query): Promise<T> {
  const json = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const reply = await send(address(path, query), { method, ...json });
  const text = await reply.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** What becomes of a stream while one listens. */
export interface Listener<T> {
  /** It is open (again): whatever was missed must be asked for. */
  opened(): void;
  event(data: T, id: string): void;
  /** It broke; it will be tried again. */
  lost(why: string): void;
}

/** Listen to server-sent events until `signal` says otherwise. (Not EventSource: that can send no token.) */
export async function listen<T>(path: string, query: Query, listener: Listener<T>, signal: AbortSignal): Promise<void> {
  let pause = 500;
  while (!signal.aborted) {
    try {
      const reply = await send(address(path, query), { signal, headers: { Accept: "text/event-stream" } });
      listener.opened();
      pause = 500;
      for await (const event of events(reply)) listener.event(JSON.parse(event.data), event.id);
    } catch (error) {
      if (signal.aborted) return;
      listener.lost(error instanceof Error ? error.message : String(error));
      if (error instanceof Problem && error.status >= 400 && error.status < 500) return;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 10_000);
  }
}

/** Look, and again `every` milliseconds after each look (0: not again), until the function that is returned is called. */
export function watch(look: (signal: AbortSignal) => Promise<void>, every: number): () => void {
  const gone = new AbortController();
  let timer = 0;
  const turn = async (): Promise<void> => {
    await look(gone.signal);
    if (every && !gone.signal.aborted) timer = window.setTimeout(turn, every);
  };
  void turn();
  return () => {
    gone.abort();
    window.clearTimeout(timer);
  };
}

/** Milliseconds without a word (the service says something every 15 s) after which a stream is taken for dead. */
const SILENCE = 60_000;

async function* events(reply: Response): AsyncGenerator<{ data: string; id: string }> {
  if (!reply.body) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => void reader.cancel(), SILENCE);
    const { value, done } = await reader.read();
    clearTimeout(silent);
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      const data = fields.get("data");
      if (data !== undefined) yield { data, id: fields.get("id") ?? "" };
    }
  }
}
