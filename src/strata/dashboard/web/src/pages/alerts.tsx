/** Alerts: trouble that somebody should know of, and who looks after it. */
import { useState } from "preact/hooks";
import { act } from "../api";
import { nodePath } from "../router";
import { may } from "../session";
import { Ask } from "../ui/confirm";
import { Badge, Failure, Table, Time } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Alert {
  id: string;
  node: string;
  bmc: string;
  severity: string;
  message: string;
  first: number;
  last: number;
  count: number;
  state: string;
  by: string;
  note: string;
}

export function AlertsPage() {
  const [all, setAll] = useState(false);
  const alerts = useAsked<{ items: Alert[]; open: number; acknowledged: number }>("/v1/alerts", { all, limit: 500 }, 5000);
  return (
    <section>
      <Failure problem={alerts.problem} />
      <p>
        <strong data-testid="open-alerts">{alerts.value?.open ?? "…"}</strong> open{Boolean(alerts.value?.acknowledged) && `, ${alerts.value?.acknowledged} acknowledged`}.{" "}
        <label class="inline">
          <input type="checkbox" role="switch" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> Also those that are over
        </label>
      </p>
      {alerts.value && !alerts.value.items.length && <p>{all ? "There has been no alert yet." : "Nothing needs you: no alert is open."}</p>}
      {Boolean(alerts.value?.items.length) && (
      <Table head={["severity", "where", "what", "since", "last", "times", "state", ""]} label="Alerts">
        {alerts.value?.items.map((one) => (
          <tr key={one.id}>
            <td>
              <Badge word={one.severity} />
            </td>
            <th scope="row">{one.node ? <a href={nodePath(one.node)}>{one.node}</a> : one.bmc || "the site"}</th>
            <td>{one.message}</td>
            <td>
              <Time at={one.first} />
            </td>
            <td>
              <Time at={one.last} />
            </td>
            <td>{one.count}</td>
            <td>
              {one.state} {one.by && <small>{[one.by, one.note].filter(Boolean).join(": ")}</small>}
            </td>
            <td>
              {one.state === "open" && may("change alert") && (
                <Ask
                  after={alerts.again}
                  question={{
                    title: "Acknowledge this alert?",
                    text: [one.node || one.bmc, one.message].filter(Boolean).join(": "),
                    button: "Acknowledge",
                    reason: true,
                    act: (note) => act("POST", "/v1/alerts/acknowledge", { ids: [one.id], note }),
                  }}
                />
              )}
            </td>
          </tr>
        ))}
      </Table>
      )}
    </section>
  );
}
