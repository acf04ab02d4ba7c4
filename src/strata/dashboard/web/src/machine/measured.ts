/** What is measured of every node (watts, degrees), as a column of steps: a cell has a colour, not a number. */
import { useEffect, useState } from "preact/hooks";
import { get, watch } from "../api";
import { may } from "../session";
import { runs } from "../status";
import { Column, live } from "./fleet";

interface Measured {
  roster: string;
  unit: string;
  values: (number | null)[];
}

/** Name of the column → metric of the API. */
const METRICS: Record<string, string> = { "@power": "power", "@temperature": "temperature" };
const EVERY = 10_000;
const STEPS = 8;

/** The columns that can be asked for here. */
export const measurable = (): string[] => (runs("power") && may("read power") ? Object.keys(METRICS) : []);

/** Values as words: `200–250 W`. */
export function stepped({ values, unit }: Measured): Column {
  const known = values.filter((value): value is number => value !== null);
  const [low, high] = known.length ? [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))] : [0, 1];
  const step = nice((high - low) / STEPS || 1);
  const column = new Column(new Uint16Array(values.length));
  values.forEach((value, position) => {
    const first = value === null ? 0 : Math.floor(value / step) * step;
    column.codes[position] = column.code(value === null ? "unknown" : `${first}–${first + step} ${unit}`);
  });
  return column;
}

/** 1, 2 or 5 times a power of ten, not below `size`. */
function nice(size: number): number {
  const power = 10 ** Math.floor(Math.log10(size));
  return Math.max(1, (([1, 2, 5].find((factor) => factor * power >= size) ?? 10) * power));
}

/** The column of that name, asked for as long as it is shown; null: it is none of these, or has not come yet. */
export function useMeasured(name: string): Column | null {
  const [column, setColumn] = useState<Column | null>(null);
  const metric = METRICS[name];
  useEffect(() => {
    setColumn(null);
    if (!metric) return;
    return watch(async (signal) => {
      try {
        const found = await get<Measured>("/v1/power/machine", { metric }, signal);
        if (found.roster === live.machine.value?.roster) setColumn(stepped(found));
      } catch {
        // The frame tells when the service cannot be asked; the old colours stay meanwhile.
      }
    }, EVERY);
  }, [metric, live.machine.value?.roster]);
  return metric ? column : null;
}
