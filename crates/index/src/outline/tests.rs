//! What is found in formatted code of each language, written as `kind path first-last`.

use proptest::prelude::*;

use super::*;

fn check(extension: &str, text: &str, expected: &[&str]) {
    let language = Language::of(Path::new(&format!("a.{extension}"))).unwrap();
    let show = |item: &Item| format!("{:?} {} {}-{}", item.kind, item.path(), item.lines.start + 1, item.lines.end);
    let found: Vec<String> = items(language, text).iter().map(show).collect();
    assert_eq!(found, expected, "in:\n{text}");
}

#[test]
fn python() {
    let text = r#"#!/usr/bin/env python
"""Docs.

def not_this():
"""
import os
from a import (
    b,
)

LIMIT = 3


# About f.
@cache
@decorated(
    "x",
)
async def f(
    a,
    b="def no(): pass",
) -> int:
    """Doc string.

class NotThis:
    """
    # inside

    def inner():
        return 1

    return a  # end
    # still inside


class A(Base):
    x = 1

    @property
    def g(self): return self.x

    def h(self):
        if self:
            pass

if __name__ == "__main__":
    f()
"#;
    check(
        "py",
        text,
        &[
            "Import import os 6-6",
            "Import from a import ( b, ) 7-9",
            "Value LIMIT 11-11",
            "Function f 14-33",
            "Function f.inner 29-30",
            "Type A 36-44",
            "Function A.g 39-40",
            "Function A.h 42-44",
        ],
    );
}

#[test]
fn rust() {
    let text = r##"//! Module.
#![allow(dead_code)]

use std::fmt::{self, Display};

/// A type.
#[derive(Debug)]
pub struct A<'a> {
    pub text: &'a str, // fn no() {
    call: fn(u32) -> u32,
}

const RAW: &str = r#"fn no() { " }"#;

impl<'a> Display for A<'a> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}}}", '}')
    }
}

impl<'a> A<'a> {
    /// Makes one.
    #[must_use]
    pub(crate) const fn new(text: &'a str) -> Self
    where
        'a: 'static,
    {
        Self { text, call: |x| x }
    }

    pub fn get(&self) -> [u8; 2] { [0; 2] }
}

trait T {
    fn needed(&self);
    fn given(&self) {}
}

#[cfg(test)]
mod tests {
    #[test]
    fn works() {}
}
"##;
    check(
        "rs",
        text,
        &[
            "Import use std::fmt::{self, Display}; 4-4",
            "Type A 6-11",
            "Value RAW 13-13",
            "Impl impl Display for A 15-19",
            "Function impl Display for A.fmt 16-18",
            "Impl impl A 21-32",
            "Function impl A.new 22-29",
            "Function impl A.get 31-31",
            "Type T 34-37",
            "Function T.needed 35-35",
            "Function T.given 36-36",
            "Type tests 39-43",
            "Function tests.works 41-42",
        ],
    );
}

#[test]
fn script() {
    let text = r#"import { a } from "./a"
import b from './b';
const c = require("c")

/** Adds. */
export async function add(x: number, y: { z: number }): Promise<{ w: number }> {
  const re = /[{"'`]\//g
  return `${x} { ${y.z ? "}" : `}`} `
}

export default class Shape extends Base<number> {
  #area = 0
  static name = "x"

  constructor(private a: number) {
    super()
  }

  @memo()
  get area(): number {
    return this.#area / 2 / 3
  }

  async *walk() {}
  arrow = (x) => {
    return x
  }
}

const twice = (x) => x * 2
export const Card = ({ title }) => {
  return <div className={title}>Don't</div>
}

function old(a)
{
  if (a) { return }
}

module.exports = {
  one() { return 1 },
  two: function () {
    return 2
  },
  three: 3,
}

Shape.prototype.grow = function (by) {
  this.a += by
};

interface Props {
  name: string;
}
"#;
    check(
        "tsx",
        text,
        &[
            "Import import { a } from \"./a\" 1-1",
            "Import import b from './b'; 2-2",
            "Import const c = require(\"c\") 3-3",
            "Function add 5-9",
            "Type Shape 11-28",
            "Value Shape.area 12-12",
            "Value Shape.name 13-13",
            "Function Shape.constructor 15-17",
            "Function Shape.area 19-22",
            "Function Shape.walk 24-24",
            "Function Shape.arrow 25-27",
            "Function twice 30-30",
            "Function Card 31-33",
            "Function old 35-38",
            "Value module.exports 40-46",
            "Function exports.one 41-41",
            "Function exports.two 42-44",
            "Value exports.three 45-45",
            "Function Shape.grow 48-50",
            "Type Props 52-54",
            "Value Props.name 53-53",
        ],
    );
}

#[test]
fn go() {
    let text = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\n// Stack holds.\ntype Stack[T any] struct {\n\titems []T\n}\n\n// Push adds.\nfunc (s *Stack[T]) Push(x T) {\n\ts.items = append(s.items, x)\n}\n\nfunc Any(x interface{}) interface{} {\n\tr := '{'\n\ts := `{ \\`\n\treturn map[string]struct{}{}\n}\n\nvar limit = 3\n";
    check(
        "go",
        text,
        &[
            "Import package main 1-1",
            "Import import ( \"fmt\" \"os\" ) 3-6",
            "Type Stack 8-11",
            "Function Stack.Push 13-16",
            "Function Any 18-22",
            "Value limit 24-24",
        ],
    );
}

#[test]
fn c_and_cpp() {
    let text = r#"#include <stdio.h>
#define LOOP(x) for (;;) {

static int count = 0;
int declared(int a);

/* Adds. */
static inline int
add(int a, int b)
{
    char c = '{';
    return a + b;
}

struct point *make(struct point *p) {
    return p;
}

namespace shapes {

template <typename T>
class Box : public Base<T> {
public:
    explicit Box(int a) : a_{a}, b_(0) { go(); }
    ~Box() override = default;
    bool operator==(const Box& other) const {
        return true;
    }

private:
    int a_;
};

template <typename T>
void Box<T>::go() {
    auto f = [](int x) { return x; };
}

}  // namespace shapes

Box::Box(int a)
    : a_{a},
      b_{1}
{
    run();
}
"#;
    check(
        "cpp",
        text,
        &[
            "Import #include <stdio.h> 1-1",
            "Value count 4-4",
            "Function declared 5-5",
            "Function add 7-13",
            "Function make 15-17",
            "Type shapes 19-39",
            "Type shapes.Box 21-32",
            "Function shapes.Box.Box 24-24",
            "Function shapes.Box.~Box 25-25",
            "Function shapes.Box.operator== 26-28",
            "Value shapes.Box.a_ 31-31",
            "Function shapes.go 34-37",
            "Function Box.Box 41-46",
        ],
    );
}

#[test]
fn java() {
    let text = r#"package a.b;

import java.util.List;

/**
 * Docs { with brace.
 */
@Service("x")
public final class Shop<T> extends Base implements Runnable {
    private final List<T> items = new ArrayList<>();

    public Shop(List<T> items) {
        this.items = items;
    }

    // Adds one.
    @Override
    @Retry(times = 3)
    public <R> List<R> add(T item, int n) throws Exception {
        String s = """
            { text block
            """;
        return null;
    }

    public int add(T item) { return 1; }

    enum Kind { A, B }
}
"#;
    check(
        "java",
        text,
        &[
            "Import package a.b; 1-1",
            "Import import java.util.List; 3-3",
            "Type Shop 5-29",
            "Value Shop.items 10-10",
            "Function Shop.Shop 12-14",
            "Function Shop.add 16-24",
            "Function Shop.add 26-26",
            "Type Shop.Kind 28-28",
        ],
    );
}

proptest! {
    /// Whatever the text, nothing breaks, and what is found lies inside it.
    #[test]
    fn any_text_can_be_read(text in "([a-z ]|[{}()\\[\\];,:=<>\"'`#/*@$\\\\\n\t]|fn |def |class |impl |func |function |é|'''|\"\"\"|r#|R\"|\\$\\{|=>|export ){0,60}") {
        for extension in ["py", "rs", "ts", "go", "cpp", "kt"] {
            let language = Language::of(Path::new(&format!("a.{extension}"))).unwrap();
            let count = text.split('\n').count();
            let masked = mask::mask(language, &text);
            prop_assert_eq!(masked.len(), text.len());
            for item in items(language, &text).into_iter().chain(members(language, &text)) {
                prop_assert!(item.lines.start <= item.head && item.head < item.lines.end && item.lines.end <= count, "{:?}", item);
            }
        }
    }
}
