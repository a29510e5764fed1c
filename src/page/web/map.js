// SPDX-License-Identifier: Apache-2.0
//
// The map: every node a block, every card in it a cell that fills with the memory given away. One canvas of the size
// of the window, drawn anew for what is in sight, so that ten thousand nodes cost what a hundred do. Keys move a
// selection, which is told to a screen reader.

const kGap = 3;

export class CardMap {
  // ON: choose(node, position), selected(node, position).
  constructor(holder, on) {
    this.holder = holder;
    this.on = on;
    this.nodes = [];
    this.at = {node: 0, card: 0};
    this.canvas = document.createElement('canvas');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'application');
    this.spacer = document.createElement('div');
    this.holder.append(this.canvas, this.spacer);
    this.holder.addEventListener('scroll', () => this.plan());
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.canvas.addEventListener('focus', () => this.move(0, 0));
    this.canvas.addEventListener('click', (event) => this.click(event));
    this.resizing = new ResizeObserver(() => this.layout());
    this.resizing.observe(holder);
  }

  end() {
    this.resizing.disconnect();
  }

  show(nodes, label) {
    this.nodes = nodes.filter((node) => node.cards.length > 0);
    this.canvas.setAttribute('aria-label', label);
    this.at.node = Math.max(0, Math.min(this.at.node, this.nodes.length - 1));
    this.layout();
  }

  layout() {
    const width = this.holder.clientWidth;
    const height = this.holder.clientHeight;
    if (width === 0 || height === 0) return;
    const most = this.nodes.reduce((n, node) => Math.max(n, node.cards.length), 1);
    const few = this.nodes.length <= 120;
    this.label = few ? 18 : 0;
    this.cell = few ? {w: 22, h: 40} : {w: 8, h: 18};
    this.block = {w: most * (this.cell.w + kGap) + (few ? 16 : 9), h: this.cell.h + this.label + (few ? 14 : 8)};
    this.columns = Math.max(1, Math.floor((width - kGap) / this.block.w));
    const rows = Math.ceil(this.nodes.length / this.columns);
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, rows * this.block.h - height)}px`;
    this.plan();
  }

  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.draw();
    });
  }

  draw() {
    if (!this.columns) return;
    const context = this.canvas.getContext('2d');
    const scale = window.devicePixelRatio || 1;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name);
    this.colours = {cell: colour('--cell'), fill: colour('--fill'), full: colour('--full'), bad: colour('--bad'),
      warn: colour('--warn'), text: colour('--dim'), focus: colour('--focus')};
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const top = this.holder.scrollTop;
    const first = Math.floor(top / this.block.h) * this.columns;
    const last = Math.min(this.nodes.length,
      (Math.ceil((top + this.holder.clientHeight) / this.block.h) + 1) * this.columns);
    for (let i = first; i < last; ++i) this.drawNode(context, i, top);
  }

  drawNode(context, index, top) {
    const node = this.nodes[index];
    const x = (index % this.columns) * this.block.w + kGap;
    const y = Math.floor(index / this.columns) * this.block.h - top;
    if (this.label > 0) {
      context.fillStyle = this.colours.text;
      context.font = '12px system-ui, sans-serif';
      context.fillText(node.name, x + 1, y + 12, this.block.w - 8);
    }
    const below = y + this.label;
    node.cards.forEach((card, position) => {
      this.drawCard(context, card, x + position * (this.cell.w + kGap), below);
      if (document.activeElement === this.canvas && index === this.at.node && position === this.at.card) {
        context.strokeStyle = this.colours.focus;
        context.lineWidth = 3;
        context.strokeRect(x + position * (this.cell.w + kGap) + .5, below + .5, this.cell.w - 1, this.cell.h - 1);
      }
    });
    if (node.lock) {
      context.strokeStyle = this.colours.warn;
      context.lineWidth = 2;
      context.strokeRect(x - 1, below - 2, node.cards.length * (this.cell.w + kGap), this.cell.h + 4);
    }
  }

  drawCard(context, card, x, y) {
    const {w, h} = this.cell;
    context.fillStyle = this.colours.cell;
    context.fillRect(x, y, w, h);
    const part = card.memory_mib > 0 ? Math.min(1, card.used_memory_mib / card.memory_mib) : 0;
    context.fillStyle = this.colours.fill;
    context.fillRect(x, y + h - part * h, w, part * h);
    // Cores, as a line at the left.
    const cores = card.cores > 0 ? Math.min(1, card.used_cores / card.cores) : 0;
    context.fillStyle = this.colours.full;
    context.fillRect(x, y + h - cores * h, Math.max(2, w / 6), cores * h);
    if (card.usable && !card.cordoned) return;
    // A shape as well as a colour.
    context.fillStyle = card.healthy ? this.colours.warn : this.colours.bad;
    context.fillRect(x, y, w, Math.max(4, h / 4));
    context.strokeStyle = context.fillStyle;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + w, y + h);
    context.stroke();
  }

  key(event) {
    const steps = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [this.columns, 0], ArrowUp: [-this.columns, 0],
      PageDown: [this.columns * 8, 0], PageUp: [-this.columns * 8, 0], Home: [-this.nodes.length, 0],
      End: [this.nodes.length, 0]};
    if (event.key in steps) {
      this.move(...steps[event.key]);
    } else if ((event.key === 'Enter' || event.key === ' ') && this.nodes.length > 0) {
      this.on.choose(this.nodes[this.at.node], this.at.card);
    } else {
      return;
    }
    event.preventDefault();
  }

  move(nodes, cards) {
    if (this.nodes.length === 0) return;
    let node = Math.max(0, Math.min(this.nodes.length - 1, this.at.node + nodes));
    let card = this.at.card + cards;
    if (card < 0 && node > 0) card = this.nodes[--node].cards.length - 1;
    else if (card >= this.nodes[node].cards.length && cards > 0 && node + 1 < this.nodes.length) {
      ++node;
      card = 0;
    }
    card = Math.max(0, Math.min(this.nodes[node].cards.length - 1, card));
    this.at = {node, card};
    this.reveal(node);
    this.on.selected(this.nodes[node], card);
    this.plan();
  }

  reveal(index) {
    const y = Math.floor(index / this.columns) * this.block.h;
    const {scrollTop, clientHeight} = this.holder;
    if (y < scrollTop) this.holder.scrollTop = y;
    else if (y + this.block.h > scrollTop + clientHeight) this.holder.scrollTop = y + this.block.h - clientHeight;
  }

  click(event) {
    const column = Math.floor(Math.max(0, event.offsetX - kGap) / this.block.w);
    const row = Math.floor((event.offsetY + this.holder.scrollTop) / this.block.h);
    const index = row * this.columns + column;
    if (column >= this.columns || index >= this.nodes.length) return;
    const card = Math.floor((event.offsetX - kGap - column * this.block.w) / (this.cell.w + kGap));
    this.at = {node: index, card: Math.max(0, Math.min(card, this.nodes[index].cards.length - 1))};
    this.on.choose(this.nodes[index], this.at.card);
    this.plan();
  }
}
