/** The floor on a canvas: what part of the picture is seen, moved by wheel, pointer, fingers and keys. */
import type { Column, Machine } from "./fleet";
import type { Layout } from "./layout";
import { looks } from "./colours";
import { Picture } from "./picture";

const [LINES_FROM, LETTERS_FROM, NAMES_FROM, MOST] = [5, 14, 56, 160];

export interface FloorEvents {
  /** The pointer (or the keys) are at a node; -1: at none. */
  pointed(position: number): void;
  opened(position: number): void;
}

export class Floor {
  private picture: Picture | null = null;
  private machine: Machine | null = null;
  private column: Column | null = null;
  private shown: Uint8Array | null = null;
  private scale = 1;
  private left = 0;
  private top = 0;
  private fitted = true;
  private due = 0;
  private stale = false;
  private cursor = -1;
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private readonly resized: ResizeObserver;
  private readonly listeners = new AbortController();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly events: FloorEvents,
  ) {
    const options = { signal: this.listeners.signal };
    canvas.addEventListener("wheel", (event) => this.wheel(event), { ...options, passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event), options);
    canvas.addEventListener("pointermove", (event) => this.move(event), options);
    canvas.addEventListener("pointerup", (event) => this.up(event), options);
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId), options);
    canvas.addEventListener("pointerleave", () => this.point(-1), options);
    canvas.addEventListener("keydown", (event) => this.key(event), options);
    this.resized = new ResizeObserver(() => this.fitted ? this.fit() : this.redraw());
    this.resized.observe(canvas);
  }

  close(): void {
    this.listeners.abort();
    this.resized.disconnect();
    cancelAnimationFrame(this.due);
  }

  /** Show this; `layout` is another one only when nodes came, went or moved. */
  show(machine: Machine, layout: Layout, column: Column, shown: Uint8Array | null): void {
    this.machine = machine;
    this.column = column;
    this.shown = shown;
    this.stale = true;
    if (this.picture?.layout !== layout) {
      this.picture = new Picture(layout);
      this.cursor = -1;
      this.fit();
    }
    this.redraw();
  }

  /** All of it, as large as it fits. */
  fit(): void {
    if (!this.picture) return;
    const { width, height } = this.picture.layout;
    this.scale = Math.min(this.canvas.clientWidth / width, this.canvas.clientHeight / height) || 1;
    this.left = (width - this.canvas.clientWidth / this.scale) / 2;
    this.top = (height - this.canvas.clientHeight / this.scale) / 2;
    this.fitted = true;
    this.redraw();
  }

  /** Bring a node into the middle, large enough to read. */
  goTo(position: number): void {
    if (!this.picture) return;
    this.scale = Math.max(this.scale, NAMES_FROM);
    this.fitted = false;
    this.cursor = position;
    this.left = this.picture.layout.x[position]! + 0.5 - this.canvas.clientWidth / this.scale / 2;
    this.top = this.picture.layout.y[position]! + 0.5 - this.canvas.clientHeight / this.scale / 2;
    this.redraw();
  }

  zoom(factor: number, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2): void {
    if (!this.picture) return;
    const least = Math.min(this.canvas.clientWidth / this.picture.layout.width, this.canvas.clientHeight / this.picture.layout.height);
    const scale = Math.min(Math.max(this.scale * factor, least), Math.max(MOST, least));
    this.left += x / this.scale - x / scale;
    this.top += y / this.scale - y / scale;
    this.scale = scale;
    this.fitted = scale === least;
    if (this.fitted) this.fit();
    this.redraw();
  }

  private redraw(): void {
    this.due ||= requestAnimationFrame(() => {
      this.due = 0;
      this.draw();
    });
  }

  private draw(): void {
    const { canvas, picture, column } = this;
    const context = canvas.getContext("2d");
    if (!context || !picture || !column || !this.machine) return;
    if (this.stale) {
      picture.paint(column, this.shown);
      this.stale = false;
    }
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    context.imageSmoothingEnabled = this.scale < 1;
    const { layout } = picture;
    context.drawImage(picture.canvas, -this.left * this.scale, -this.top * this.scale, layout.width * this.scale, layout.height * this.scale);
    const style = getComputedStyle(canvas);
    if (this.scale >= LINES_FROM) this.lines(context, style.backgroundColor);
    this.titles(context, style.color);
    if (this.scale >= LETTERS_FROM) this.letters(context);
    if (this.cursor >= 0) this.frame(context, this.cursor, style.color);
    canvas.dataset.painted = String(Number(canvas.dataset.painted ?? 0) + 1);
    performance.mark("strata:painted");
  }

  /** The part of the grid that is seen. */
  private seen(): [number, number, number, number] {
    const { layout } = this.picture!;
    return [
      Math.max(0, Math.floor(this.left)),
      Math.max(0, Math.floor(this.top)),
      Math.min(layout.width, Math.ceil(this.left + this.canvas.clientWidth / this.scale)),
      Math.min(layout.height, Math.ceil(this.top + this.canvas.clientHeight / this.scale)),
    ];
  }

  private lines(context: CanvasRenderingContext2D, colour: string): void {
    const [left, top, right, bottom] = this.seen();
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = left; x <= right; x++) {
      context.moveTo((x - this.left) * this.scale, (top - this.top) * this.scale);
      context.lineTo((x - this.left) * this.scale, (bottom - this.top) * this.scale);
    }
    for (let y = top; y <= bottom; y++) {
      context.moveTo((left - this.left) * this.scale, (y - this.top) * this.scale);
      context.lineTo((right - this.left) * this.scale, (y - this.top) * this.scale);
    }
    context.stroke();
  }

  private titles(context: CanvasRenderingContext2D, colour: string): void {
    context.fillStyle = colour;
    context.font = `${Math.min(14, Math.max(8, this.scale * 1.4))}px system-ui, sans-serif`;
    context.textAlign = "left";
    context.textBaseline = "bottom";
    for (const block of this.picture!.layout.blocks) {
      if (block.width * this.scale < 28) continue;
      context.fillText(block.name, (block.x - this.left) * this.scale, (block.y - this.top) * this.scale - 1, block.width * this.scale);
    }
  }

  private letters(context: CanvasRenderingContext2D): void {
    const [left, top, right, bottom] = this.seen();
    const { layout } = this.picture!;
    const found = looks(this.column!.words);
    const named = this.scale >= NAMES_FROM;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let y = top; y < bottom; y++) {
      for (let x = left; x < right; x++) {
        const position = layout.at(x, y);
        if (position < 0) continue;
        const [middle, centre] = [(x + 0.5 - this.left) * this.scale, (y + 0.5 - this.top) * this.scale];
        const look = found[this.column!.codes[position]!]!;
        context.fillStyle = look.ink;
        context.font = `bold ${Math.min(28, this.scale * 0.5)}px system-ui, sans-serif`;
        context.fillText(look.letter, middle, named ? centre - this.scale * 0.12 : centre);
        if (!named) continue;
        context.font = "11px system-ui, sans-serif";
        context.fillText(this.machine!.names[position]!, middle, centre + this.scale * 0.3, this.scale - 4);
      }
    }
  }

  private frame(context: CanvasRenderingContext2D, position: number, colour: string): void {
    const { layout } = this.picture!;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    const size = Math.max(this.scale, 6);
    context.strokeRect((layout.x[position]! - this.left) * this.scale - 1, (layout.y[position]! - this.top) * this.scale - 1, size + 2, size + 2);
  }

  // hands

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.offsetX, event.offsetY);
  }

  private down(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.moved = 0;
  }

  private move(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.point(this.under(event));
      return;
    }
    const others = [...this.pointers].filter(([ident]) => ident !== event.pointerId).map(([, at]) => at);
    const [shiftX, shiftY] = [event.offsetX - before.x, event.offsetY - before.y];
    this.moved += Math.abs(shiftX) + Math.abs(shiftY);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    const other = others[0];
    if (other) {
      const far = (at: { x: number; y: number }): number => Math.hypot(at.x - other.x, at.y - other.y) || 1;
      this.zoom(far({ x: event.offsetX, y: event.offsetY }) / far(before), (event.offsetX + other.x) / 2, (event.offsetY + other.y) / 2);
    } else {
      this.left -= shiftX / this.scale;
      this.top -= shiftY / this.scale;
      this.fitted = false;
      this.redraw();
    }
  }

  private up(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
    if (this.moved > 6) return;
    const position = this.under(event);
    if (position >= 0) this.events.opened(position);
  }

  private under(event: PointerEvent): number {
    return this.picture?.layout.at(event.offsetX / this.scale + this.left, event.offsetY / this.scale + this.top) ?? -1;
  }

  private point(position: number): void {
    if (position === this.cursor) return;
    this.cursor = position;
    this.events.pointed(position);
    this.redraw();
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const step = steps[event.key];
    if (step) this.step(...step);
    else if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "0" || event.key === "Home") this.fit();
    else if (event.key === "Enter" && this.cursor >= 0) this.events.opened(this.cursor);
    else return;
    event.preventDefault();
  }

  /** The next node in a direction, over gaps. */
  private step(x: number, y: number): void {
    const layout = this.picture?.layout;
    if (!layout) return;
    if (this.cursor < 0) this.point(0);
    else {
      let [column, row] = [layout.x[this.cursor]!, layout.y[this.cursor]!];
      do [column, row] = [column + x, row + y];
      while (column >= 0 && row >= 0 && column < layout.width && row < layout.height && layout.at(column, row) < 0);
      const found = layout.at(column, row);
      if (found >= 0) this.point(found);
    }
    const [left, top, right, bottom] = this.seen();
    const [column, row] = [layout.x[this.cursor]!, layout.y[this.cursor]!];
    if (column < left || column >= right || row < top || row >= bottom) {
      this.left = column - this.canvas.clientWidth / this.scale / 2;
      this.top = row - this.canvas.clientHeight / this.scale / 2;
      this.redraw();
    }
  }
}
