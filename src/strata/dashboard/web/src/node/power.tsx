/** What the node draws, over the last hour. */
import { useMemo } from "preact/hooks";
import { Failure } from "../ui/parts";
import { Plot, type History } from "../ui/plot";
import { useAsked } from "../ui/use";

export function NodePower({ name }: { name: string }) {
  const power = useAsked<History>("/v1/power/history", { select: name, metric: "power" }, 15_000);
  const lines = useMemo(() => [{ label: name, values: power.value?.values ?? [], colour: "#0a84c6" }], [power.value]);
  return (
    <>
      <Failure problem={power.problem} />
      {power.value && <Plot times={power.value.times} lines={lines} unit={power.value.unit} label={`Power of ${name} in the last hour`} />}
    </>
  );
}
