/** Images, where they are, and how many nodes run each. */
import { live } from "../machine/fleet";
import { useSignal } from "../signal";
import { Failure, Table, Time } from "../ui/parts";
import { useAsked } from "../ui/use";

interface Image {
  name: string;
  tag: string;
  serial: number;
  image: string;
  size: number;
  architecture: string;
  since: number;
  author: string;
  on: string[];
  not_on: string[];
}

export function ImagesPage() {
  const images = useAsked<{ items: Image[] }>("/v1/images", {}, 10_000);
  const running = useSignal(live.machine)?.columns.get("image")?.counts() ?? [];
  return (
    <section>
      <Failure problem={images.problem} />
      {images.value && !images.value.items.length && <p>No image yet. strata image import brings one.</p>}
      {Boolean(images.value?.items.length) && (
      <Table head={["image", "serial", "size", "architecture", "since", "by", "on controllers"]} label="Images">
        {images.value?.items.map((one) => (
          <tr key={`${one.name}:${one.tag}`}>
            <th scope="row" title={one.image}>
              {one.name}:{one.tag}
            </th>
            <td>{one.serial}</td>
            <td>{(one.size / 1e6).toFixed(1)}&nbsp;MB</td>
            <td>{one.architecture}</td>
            <td>
              <Time at={one.since} />
            </td>
            <td>{one.author}</td>
            <td>
              {one.on.length}
              {one.not_on.length ? `, not yet on ${one.not_on.join(", ")}` : ""}
            </td>
          </tr>
        ))}
      </Table>
      )}
      {running.length > 0 && (
        <>
          <h3>What nodes run</h3>
          <ul>
            {running.map(([value, count]) => (
              <li key={value}>
                <a href={`#/machine?by=image&select=${encodeURIComponent(`fact:image=${value}`)}`}>{value}</a>: {count} {count === 1 ? "node" : "nodes"}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
