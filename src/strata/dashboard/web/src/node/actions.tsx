/** What can be done to a node: each asks first, and is shown to whoever may do it. */
import { act } from "../api";
import { may } from "../session";
import { runs } from "../status";
import { Ask, type Question } from "../ui/confirm";
import { useAsked } from "../ui/use";
import type { Node } from "./records";

export function Actions({ node, after }: { node: Node; after: () => void }) {
  const select = node.name;
  const want = (variable: string, value: string) => () => act("POST", "/v1/desires", { select, set: { [variable]: [value] } });
  const personalities = useAsked<{ items: { name: string }[] }>(may("change desire") && runs("provisioning") ? "/v1/personalities" : "");
  const names = personalities.value?.items.map((one) => one.name) ?? [];
  const off = node.desires.power?.values.includes("off");
  /** Whether each is offered. */
  const offers: [unknown, Question][] = [
    [
      may("change desire") && !off,
      {
        title: `Power off ${node.name}?`,
        text: "If a workload manager uses it, it is drained first. It then stays off until somebody switches it on.",
        button: "Power off",
        act: want("power", "off"),
      },
    ],
    [
      may("change desire") && off,
      { title: `Power on ${node.name}?`, text: "It is switched on, and stays on.", button: "Power on", act: want("power", "on") },
    ],
    [
      may("change bmc"),
      {
        title: `Power cycle ${node.name}?`,
        text: "Its power is cut at once and comes back. What runs on it is lost.",
        button: "Power cycle",
        act: () => act("POST", "/v1/bmc/power", { select, action: "cycle" }),
      },
    ],
    [
      may("create hold") && !node.hold,
      {
        title: `Hold ${node.name}?`,
        text: "Strata does nothing to it until a person releases it.",
        button: "Hold",
        reason: true,
        act: (reason) => act("POST", "/v1/holds", { select, reason }),
      },
    ],
    [
      may("delete hold") && node.hold,
      {
        title: `Release ${node.name}?`,
        text: `${node.hold?.author} holds it: ${node.hold?.reason}. Strata looks after it again.`,
        button: "Release",
        act: () => act("DELETE", "/v1/holds", undefined, { select }),
      },
    ],
    [
      may("change desire") && (node.fault || node.state === "faulted"),
      {
        title: `Try ${node.name} again?`,
        text: "Its failures are forgotten, and Strata tries again to bring it to its goal.",
        button: "Try again",
        act: () => act("POST", "/v1/retries", { select }),
      },
    ],
    [
      may("change desire") && names.length > 0,
      {
        title: `What should ${node.name} run?`,
        text: "If a workload manager uses it, it is drained first.",
        button: "Set",
        label: "Personality",
        choices: names,
        act: (_, choice) => want("image", choice)(),
      },
    ],
  ];
  return (
    <div class="actions" role="group" aria-label="Actions">
      {offers.map(([offered, question]) => Boolean(offered) && <Ask key={question.button} question={question} after={after} />)}
    </div>
  );
}
