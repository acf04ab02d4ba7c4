/** The service at a glance, looked at every few seconds for as long as somebody is signed in. */
import { get, watch } from "./api";
import { may } from "./session";
import { signal } from "./signal";

/** What of `GET /v1/status` is shown. */
export interface Status {
  nodes: number;
  /** The layers that run: nothing of others is shown. */
  layers: string[];
  troubles: string[];
  freezes: number;
}

const EVERY = 5000;

export const status = signal<Status | null>(null);
/** Why the service cannot be asked; empty: it can. */
export const away = signal("");

/** Look until the function that is returned is called. */
export function watchStatus(): () => void {
  const end = watch(async (signal) => {
    try {
      status.set(await get<Status>("/v1/status", {}, signal));
      away.set("");
    } catch (error) {
      if (!signal.aborted) away.set(error instanceof Error ? error.message : String(error));
    }
  }, EVERY);
  return () => {
    end();
    status.set(null);
  };
}

/** Whether a layer runs. Whoever may not know is shown what their rights are for. */
export const runs = (layer: string): boolean => status.value?.layers.includes(layer) ?? !may("read status");
