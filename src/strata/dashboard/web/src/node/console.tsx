/** What the node prints, as it prints it. Lines of text: whatever they hold is shown and never obeyed. Who may, types. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, act, get, listen } from "../api";
import { may } from "../session";
import { Failure } from "../ui/parts";

interface Line {
  id: number;
  time: number;
  source: string;
  text: string;
}

const KEPT = 2000;

export function Console({ path }: { path: string }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [problem, setProblem] = useState<Problem>();
  const [trouble, setTrouble] = useState("");
  const box = useRef<HTMLPreElement>(null);
  const bottom = useRef(true);
  useEffect(() => {
    const gone = new AbortController();
    const begin = async (): Promise<void> => {
      try {
        const { items } = await get<{ items: Line[] }>(`${path}/console`, { lines: 500 }, gone.signal);
        setLines(items);
        const since = items.at(-1)?.id;
        const heard = (line: Line): void => {
          if (line.text !== undefined) setLines((before) => [...before.slice(-KEPT), line]);
        };
        await listen<Line>(`${path}/console/follow`, since === undefined ? {} : { since }, { opened: () => setTrouble(""), event: heard, lost: setTrouble }, gone.signal);
      } catch (error) {
        if (!gone.signal.aborted) setProblem(error as Problem);
      }
    };
    void begin();
    return () => gone.abort();
  }, [path]);
  useEffect(() => {
    if (box.current && bottom.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  return (
    <>
      <Failure problem={problem} />
      {trouble && <p role="status">Not live: {trouble}</p>}
      <pre
        ref={box}
        class="console"
        tabIndex={0}
        role="log"
        aria-label="Console"
        onScroll={({ currentTarget: at }) => (bottom.current = at.scrollTop + at.clientHeight >= at.scrollHeight - 4)}
      >
        {lines.length ? lines.map((line) => `${new Date(line.time * 1000).toLocaleTimeString()} ${line.text}\n`).join("") : "Nothing was printed yet."}
      </pre>
      {may("change console") && <Keys path={path} />}
    </>
  );
}

/** A line for the node: sent when Enter is pressed, as a terminal would. */
function Keys({ path }: { path: string }) {
  const [line, setLine] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const type = async (text: string): Promise<void> => {
    try {
      await act("POST", `${path}/console/keys`, { data: base64(text) });
      setProblem(undefined);
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  return (
    <form
      class="keys"
      onSubmit={(event) => {
        event.preventDefault();
        void type(`${line}\r`);
        setLine("");
      }}
    >
      <Failure problem={problem} />
      <fieldset role="group">
        <input
          aria-label="Type at the console"
          placeholder="Type at the console; Enter sends the line"
          autocomplete="off"
          spellcheck={false}
          value={line}
          onInput={({ currentTarget }) => setLine(currentTarget.value)}
        />
        <button type="button" class="outline" onClick={() => void type("\x03")}>
          Ctrl-C
        </button>
      </fieldset>
    </form>
  );
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}
