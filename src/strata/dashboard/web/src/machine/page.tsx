/** The machine: every node as a cell, live, or as it was. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem, get } from "../api";
import { asked, nodePath } from "../router";
import { useSignal } from "../signal";
import { Failure } from "../ui/parts";
import { DOING, STATE, live, type Machine } from "./fleet";
import { Floor } from "./floor";
import { byGroup, byPlace } from "./layout";
import { looks, ordered, painted } from "./colours";
import { measurable, useMeasured } from "./measured";
import { unfold } from "./nodeset";
import { Replay } from "./replay";

const TITLES: Record<string, string> = { [STATE]: "state", [DOING]: "step under way", "@power": "watts", "@temperature": "temperature" };
const title = (column: string): string => TITLES[column] ?? column;

export function MachinePage() {
  const now = useSignal(live.machine);
  const trouble = useSignal(live.trouble);
  const [by, setBy] = useState(asked("by") || STATE);
  const [grouped, setGrouped] = useState(false);
  const [search, setSearch] = useState(asked("select"));
  const [hits, setHits] = useState<Set<string> | null>(null);
  const [problem, setProblem] = useState<Problem>();
  const [past, setPast] = useState<Machine | null>(null);
  const [pointed, setPointed] = useState(-1);
  const canvas = useRef<HTMLCanvasElement>(null);
  const floor = useRef<Floor | null>(null);
  const shownMachine = past ?? now;
  const columnName = past && by.startsWith("@") ? "power" : by;
  const measured = useMeasured(columnName);
  const column = measured ?? shownMachine?.columns.get(columnName);

  const layout = useMemo(() => now && (grouped ? byGroup(now) : byPlace(now)), [now, now?.roster, grouped]);
  const mask = useMemo(() => {
    if (!hits || !now) return null;
    return Uint8Array.from(now.names, (name) => (hits.has(name) ? 1 : 0));
  }, [hits, now?.roster]);

  useEffect(() => {
    if (!canvas.current) return;
    const made = new Floor(canvas.current, {
      pointed: setPointed,
      opened: (position) => {
        const name = live.machine.value?.names[position];
        if (name) location.hash = nodePath(name);
      },
    });
    floor.current = made;
    return () => made.close();
  }, [Boolean(now)]);
  // After every drawing: the columns of a machine change in place.
  useEffect(() => {
    if (shownMachine && layout && column) floor.current?.show(shownMachine, layout, column, mask);
  });

  const find = async (text: string): Promise<void> => {
    setProblem(undefined);
    if (!text.trim()) {
      setHits(null);
      return;
    }
    try {
      const { nodeset } = await get<{ nodeset: string }>("/v1/nodes", { select: text.trim(), folded: true });
      const found = new Set(unfold(nodeset));
      setHits(found);
      const [only] = found;
      if (found.size === 1 && only) floor.current?.goTo(live.machine.value?.position(only) ?? 0);
    } catch (error) {
      setHits(null);
      setProblem(error as Problem);
    }
  };
  useEffect(() => {
    if (search) void find(search);
  }, []);

  if (!now) return <p aria-busy={!trouble}>{trouble || "Loading the machine …"}</p>;
  const counts = ordered(column?.counts() ?? []);
  const found = column ? looks(column.words) : [];
  const choices = [...(shownMachine?.columns.keys() ?? []), ...(past ? [] : measurable())];
  const at = pointed >= 0 && shownMachine ? shownMachine.names[pointed] : undefined;
  return (
    <section class="machine">
      <div class="tools">
        <form
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            void find(search);
          }}
        >
          <input
            type="search"
            aria-label="Find nodes"
            placeholder="n[1-16], @compute, state:faulted"
            value={search}
            onInput={(event) => {
              setSearch(event.currentTarget.value);
              if (!event.currentTarget.value) void find("");
            }}
          />
        </form>
        <label>
          Colour by{" "}
          <select value={columnName} onChange={(event) => setBy(event.currentTarget.value)}>
            {choices.map((name) => (
              <option key={name} value={name}>
                {title(name)}
              </option>
            ))}
          </select>
        </label>
        <label>
          <input type="checkbox" role="switch" checked={grouped} onChange={(event) => setGrouped(event.currentTarget.checked)} /> by group
        </label>
        <span role="group" aria-label="Zoom" class="zoom">
          <button type="button" class="secondary" aria-label="Zoom in" onClick={() => floor.current?.zoom(1.6)}>
            +
          </button>
          <button type="button" class="secondary" aria-label="Zoom out" onClick={() => floor.current?.zoom(1 / 1.6)}>
            −
          </button>
          <button type="button" class="secondary" onClick={() => floor.current?.fit()}>
            All
          </button>
        </span>
      </div>
      <ul class="legend" aria-label={`Nodes by ${title(columnName)}`} data-testid="legend">
        {counts.map(([word, count]) => {
          const look = found[column!.words.indexOf(word)]!;
          return (
            <li key={word} data-value={word} data-count={count}>
              <button type="button" class="plain" onClick={() => choose(columnName, word, setSearch, find)}>
                <span class="swatch" ref={painted(look)}>
                  {look.letter}
                </span>{" "}
                {word || "none"} <strong>{count}</strong>
              </button>
            </li>
          );
        })}
      </ul>
      <Failure problem={problem} />
      {trouble && (
        <p role="status" class="failure">
          Not live: {trouble}. Trying again.
        </p>
      )}
      {hits && (
        <p role="status" data-testid="hits">
          {hits.size} {hits.size === 1 ? "node" : "nodes"} found
          {[...hits].slice(0, 8).map((name) => (
            <a key={name} href={nodePath(name)}>
              {name}
            </a>
          ))}
          {hits.size > 8 && " …"}{" "}
          <button
            type="button"
            class="plain link"
            onClick={() => {
              setSearch("");
              void find("");
            }}
          >
            Show all
          </button>
        </p>
      )}
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label={`${now.names.length} nodes on the floor. Arrows go from node to node, plus and minus zoom, 0 shows all, Enter opens a node. The numbers are above.`}
      />
      <p class="pointed" aria-live="polite">
        {at && shownMachine
          ? `${at} ${shownMachine.locations[pointed] ?? ""} ${title(columnName)}: ${column?.word(pointed) || "–"}`
          : `${now.names.length} nodes`}
      </p>
      <Past now={now} show={setPast} />
    </section>
  );
}

/** Look for the nodes that have a value, as one would type it. */
function choose(column: string, word: string, setSearch: (text: string) => void, find: (text: string) => Promise<void>): void {
  if (column.startsWith("@") && column !== STATE) return; // of these no selector knows
  const text = column === STATE ? `state:${word}` : `fact:${column}=${word}`;
  setSearch(text);
  void find(text);
}

/** A slider over the last hours. */
function Past({ now, show }: { now: Machine; show: (machine: Machine | null) => void }) {
  const [replay, setReplay] = useState<Replay | null>(null);
  const [time, setTime] = useState(0);
  const [problem, setProblem] = useState<Problem>();
  const [, redraw] = useState(0);
  const begin = async (hours: number): Promise<void> => {
    try {
      const made = await Replay.of(now, hours);
      if (!made) throw new Problem(0, "nodes came or went just now", "try again");
      setReplay(made);
      setTime(made.until);
      show(made.at(made.until));
      setProblem(undefined);
    } catch (error) {
      setProblem(error as Problem);
    }
  };
  const go = (to: number): void => {
    if (!replay) return;
    setTime(to);
    show(replay.at(to));
    redraw((count) => count + 1);
  };
  if (!replay)
    return (
      <p class="past">
        Replay the last{" "}
        {[1, 4, 12].map((hours) => (
          <button type="button" class="secondary outline" key={hours} onClick={() => void begin(hours)}>
            {hours} h
          </button>
        ))}
        <Failure problem={problem} />
      </p>
    );
  return (
    <div class="past">
      <label>
        As it was at {new Date(time * 1000).toLocaleTimeString()} ({replay.length} changes)
        <input
          type="range"
          min={replay.since}
          max={replay.until}
          step="any"
          value={time}
          onInput={(event) => go(Number(event.currentTarget.value))}
        />
      </label>
      <button
        type="button"
        onClick={() => {
          setReplay(null);
          show(null);
        }}
      >
        Back to now
      </button>
    </div>
  );
}
