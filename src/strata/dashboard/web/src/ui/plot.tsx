/** A value over time. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export interface Line {
  label: string;
  values: (number | null)[];
  colour: string;
}

export function Plot({ times, lines, unit, label }: { times: number[]; lines: Line[]; unit: string; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const place = box.current;
    if (!place || !times.length) return;
    const text = getComputedStyle(place).color;
    const axis: uPlot.Axis = { stroke: text, grid: { stroke: "#8884" }, ticks: { stroke: "#8884" } };
    const plot = new uPlot(
      {
        width: Math.max(place.clientWidth, 200),
        height: 220,
        series: [{}, ...lines.map((line) => ({ label: line.label, stroke: line.colour, width: 2 }))],
        scales: { y: { range: (_, __, most) => [0, (most || 1) * 1.05] } },
        axes: [axis, { ...axis, size: 70, label: unit }],
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
