import type { Todo } from "./store.js";

export function line(todo: Todo): string {
  const mark = todo.done ? "x" : " ";
  const due = todo.due ? ` (due ${todo.due})` : "";
  return `[${mark}] ${todo.id} ${todo.text}${due}`;
}

export function list(todos: Todo[]): string {
  return todos.map(line).join("\n");
}

export function summary(todos: Todo[]): string {
  const done = todos.filter((todo) => todo.done).length;
  return `${done} of ${todos.length} done`;
}
