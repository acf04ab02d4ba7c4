/** A value over time. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { watts } from "./parts";

/** What the API says of a metric over time. */
export interface History {
  unit: string;
  times: number[];
  values: (number | null)[];
}

export interface Line {
  label: string;
  values: (number | null)[];
  colour: string;
  dashed?: boolean;
}

const clock = (time: number, seconds = false): string =>
  new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(seconds && { second: "2-digit" }) });

export function Plot({ times, lines, unit, label }: { times: number[]; lines: Line[]; unit: string; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const place = box.current;
    if (!place || !times.length) return;
    const amount = (value: number): string => (unit === "W" ? watts(value) : `${value} ${unit}`);
    // One unit along the axis, whatever each value would be written in.
    const marked = (value: number, most: number): string => (unit === "W" && most >= 1e4 ? `${value / 1000} kW` : amount(value));
    const text = getComputedStyle(place).color;
    const axis: uPlot.Axis = { stroke: text, grid: { stroke: "#8884" }, ticks: { stroke: "#8884" } };
    const plot = new uPlot(
      {
        width: Math.max(place.clientWidth, 200),
        height: 220,
        series: [
          { value: (_, time) => (time === null || time === undefined ? "–" : clock(time, true)) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: line.colour,
            width: 2,
            ...(line.dashed && { dash: [6, 4] }),
            value: (_: uPlot, value: number | null) => (value === null || value === undefined ? "–" : amount(value)),
          })),
        ],
        scales: { y: { range: (_, __, most) => [0, (most || 1) * 1.05] } },
        axes: [
          { ...axis, values: (_, times) => times.map((time) => clock(time)) },
          { ...axis, size: 84, values: (_, values) => values.map((value) => marked(value, values.at(-1) ?? 0)) },
        ],
      },
      [times, ...lines.map((line) => line.values)],
      place,
    );
    const resized = new ResizeObserver(() => plot.setSize({ width: Math.max(place.clientWidth, 200), height: 220 }));
    resized.observe(place);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [times, lines]);
  return <div ref={box} class="plot" role="img" aria-label={label} />;
}
