import { list, summary } from "./format.js";
import { Store } from "./store.js";

export function main(argv: string[]): number {
  const store = new Store("todos.json");
  store.load();
  const [command, ...rest] = argv;
  switch (command) {
    case "add":
      store.add(rest.join(" "));
      break;
    case "done":
      store.complete(Number(rest[0]));
      break;
    case "list":
      console.log(list(store.open()));
      console.log(summary(store.all()));
      break;
    default:
      console.error(`unknown command ${command}`);
      return 1;
  }
  store.save();
  return 0;
}
