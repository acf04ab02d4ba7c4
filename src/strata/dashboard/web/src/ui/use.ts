/** Asking while a component is shown. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Problem, get } from "../api";

export interface Asked<T> {
  value: T | undefined;
  problem: Problem | undefined;
  /** Ask again now. */
  again: () => void;
}

/** What the service says at `path`, asked again every `every` milliseconds (0: not again). Empty path: nothing. */
export function useAsked<T>(path: string, query: Record<string, string | number | boolean> = {}, every = 0): Asked<T> {
  const [value, setValue] = useState<T>();
  const [problem, setProblem] = useState<Problem>();
  const key = path + JSON.stringify(query);
  const ask = useRef<() => void>(() => undefined);
  useEffect(() => {
    const gone = new AbortController();
    let timer = 0;
    setValue(undefined);
    setProblem(undefined);
    const look = async (): Promise<void> => {
      window.clearTimeout(timer);
      if (!path) return;
      try {
        const found = await get<T>(path, query, gone.signal);
        if (gone.signal.aborted) return;
        setValue(() => found);
        setProblem(undefined);
      } catch (error) {
        if (!gone.signal.aborted) setProblem(error instanceof Problem ? error : new Problem(0, String(error), ""));
      }
      if (every && !gone.signal.aborted) timer = window.setTimeout(look, every);
    };
    ask.current = () => void look();
    void look();
    return () => {
      gone.abort();
      window.clearTimeout(timer);
    };
  }, [key, every]);
  return { value, problem, again: useCallback(() => ask.current(), []) };
}
