// A sparkline on a canvas: P95 as a line, loss as bars that stand on the floor, the unknown as a gap.

/** Loss at which a bar reaches full height: beyond a tenth a line is lost anyway. */
const FULL_LOSS = 0.1;
/** Smallest bar, in CSS pixels: one lost packet must be seen. */
const SMALLEST = 4;

/**
 * Draw `points` ([p95, loss] each, newest last) so that the newest one touches the right edge.
 * @param {HTMLCanvasElement} canvas
 * @param {Array<[number|null, number|null]>} points
 * @param {{line: string, loss: string, width: number, height: number, room: number}} look
 */
export function drawSpark(canvas, points, look) {
  const scale = globalThis.devicePixelRatio || 1;
  const { width, height } = look;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const step = width / look.room;
  const left = width - points.length * step;
  bars(pen, points, look, left, step);
  trace(pen, points, look, left, step);
}

function bars(pen, points, look, left, step) {
  pen.fillStyle = look.loss;
  points.forEach(([, loss], at) => {
    if (!loss) return;
    const tall = Math.max(SMALLEST, Math.min(1, loss / FULL_LOSS) * look.height);
    pen.fillRect(left + at * step, look.height - tall, Math.max(1.5, step - 0.5), tall);
  });
}

function trace(pen, points, look, left, step) {
  const known = points.map(([p95]) => p95).filter((p95) => p95 !== null && p95 !== undefined);
  if (!known.length) return;
  const top = Math.max(...known);
  // From zero, so that a small wobble looks small; a quarter of air above.
  const y = (p95) => look.height - 1.5 - (p95 / (top * 1.25 || 1)) * (look.height - 3);
  pen.strokeStyle = look.line;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.beginPath();
  let drawing = false;
  points.forEach(([p95], at) => {
    if (p95 === null || p95 === undefined) { drawing = false; return; }
    const x = left + (at + 0.5) * step;
    if (drawing) pen.lineTo(x, y(p95)); else { pen.moveTo(x - step / 2, y(p95)); pen.lineTo(x, y(p95)); }
    drawing = true;
  });
  pen.stroke();
}
