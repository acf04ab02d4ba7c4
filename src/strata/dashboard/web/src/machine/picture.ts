/** The machine as an image with a pixel per node. To zoom is to scale it. */
import type { Column } from "./fleet";
import type { Layout } from "./layout";
import { looks, pixel } from "./colours";

export class Picture {
  readonly canvas: HTMLCanvasElement;
  private readonly image: ImageData;
  private readonly pixels: Uint32Array;
  private readonly places: Uint32Array;

  constructor(readonly layout: Layout) {
    this.canvas = document.createElement("canvas");
    this.canvas.width = layout.width;
    this.canvas.height = layout.height;
    this.image = new ImageData(layout.width, layout.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.places = new Uint32Array(layout.x.length);
    for (let position = 0; position < layout.x.length; position++)
      this.places[position] = layout.y[position]! * layout.width + layout.x[position]!;
  }

  /** Paint all nodes by their value; those that are not `shown` faintly (null: all are). */
  paint(column: Column, shown: Uint8Array | null): void {
    const { codes, words } = column;
    const found = looks(words);
    const full = Uint32Array.from(found, (look) => pixel(look.colour, false));
    const faint = Uint32Array.from(found, (look) => pixel(look.colour, true));
    for (let position = 0; position < this.places.length; position++)
      this.pixels[this.places[position]!] = (!shown || shown[position] ? full : faint)[codes[position]!]!;
    this.canvas.getContext("2d")!.putImageData(this.image, 0, 0);
  }
}
