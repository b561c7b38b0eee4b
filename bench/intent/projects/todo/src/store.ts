import { readFileSync, writeFileSync } from "node:fs";

export interface Todo {
  id: number;
  text: string;
  done: boolean;
  due?: string;
}

export class Store {
  private todos: Todo[] = [];
  private next = 1;

  constructor(private path: string) {}

  load(): void {
    this.todos = JSON.parse(readFileSync(this.path, "utf8"));
    this.next = Math.max(0, ...this.todos.map((todo) => todo.id)) + 1;
  }

  save(): void {
    writeFileSync(this.path, JSON.stringify(this.todos, null, 2));
  }

  add(text: string, due?: string): Todo {
    const todo = { id: this.next++, text, done: false, due };
    this.todos.push(todo);
    return todo;
  }

  complete(id: number): void {
    const todo = this.todos.find((todo) => todo.id === id);
    todo!.done = true;
  }

  open(): Todo[] {
    return this.todos.filter((todo) => !todo.done);
  }

  all(): Todo[] {
    return this.todos;
  }
}
