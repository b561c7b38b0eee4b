/** Days from one day to another, both as yyyy-mm-dd. */
export function daysBetween(from: string, to: string): number {
  return Math.round((Date.parse(to) - Date.parse(from)) / 86_400_000);
}

export function isOverdue(due: string, today: string): boolean {
  return daysBetween(today, due) < 0;
}
