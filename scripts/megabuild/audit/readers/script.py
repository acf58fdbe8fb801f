"""Follows a shell script without running it: assignments, conditions, functions, and which commands would be called.

No command is ever started. ``echo``, and ``cat`` of a file that the caller hands over, mean something within ``$(…)``;
all other commands are noted as calls. What depends on the machine is unknown, and so is what depends on something
unknown, rather than guessed. The grammar is tree-sitter's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from megabuild.audit.readers import conditions, grammar
from megabuild.audit.readers.expansion import expand
from megabuild.audit.readers.state import Assigned, Break, Call, Continue, Exit, Leave, Return, State

_STEPS = 20_000  # an endless loop ends here
_DEPTH = 40  # functions that call each other
_LEAVE = {"return": Return, "break": Break, "continue": Continue}


class Unreadable(Exception):
    """The script is no shell, or never ends."""


class Script:
    """What a script would do.

    Parameters
    ----------
    text:
        The script.
    arguments:
        ``$1`` and so on.
    variables:
        Of its environment; all others are unset.
    outputs:
        What some commands print, by the whole command.
    printed:
        Returns the text of a file that it prints with ``cat``, or None.

    Raises
    ------
    Unreadable
        It cannot be parsed, or has no end.
    """

    def __init__(
        self,
        text: str,
        *,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        printed: Callable[[str], str | None] = lambda _path: None,
    ) -> None:
        tree = Parser(Language(tree_sitter_bash.language())).parse(text.encode())
        #: after the last line
        self.state = State(
            variables={name: Assigned(value, 0) for name, value in (variables or {}).items()},
            arguments=list(arguments),
        )
        self._outputs = outputs or {}
        self._printed = printed
        self._echoed: list[str | None] | None = None
        self._read = ""
        self._steps = 0
        self._depth = 0
        if tree.root_node.has_error and not tree.root_node.named_child_count:
            raise Unreadable("it is no shell script")
        try:
            with suppress(Leave):
                self._run(tree.root_node)
        except RecursionError as error:
            raise Unreadable("it is nested too deeply") from error

    # ------------------------------------------------------------------ statements; each returns whether it succeeds
    def _run(self, node: Node) -> bool | None:
        self._steps += 1
        if self._steps > _STEPS:
            raise Unreadable("it does not end")
        handler: Callable[[Node], bool | None] | None = getattr(self, f"_run_{node.type}", None)
        if handler is not None:
            return handler(node)
        if node.type == "function_definition":
            name = node.child_by_field_name("name")
            if name is not None:
                self.state.functions[grammar.text(name)] = node
            return True
        if node.type in ("test_command", "binary_expression", "unary_expression", "parenthesized_expression"):
            return conditions.holds(node, self._word)
        return None

    def _sequence(self, nodes: Sequence[Node]) -> bool | None:
        result: bool | None = True
        for node in nodes:
            if node.is_named and node.type != "comment":
                result = self._run(node)
        return result

    def _run_program(self, node: Node) -> bool | None:
        return self._sequence(node.children)

    _run_compound_statement = _run_do_group = _run_program

    def _run_subshell(self, node: Node) -> bool | None:
        with self.state.aside(calls=True), suppress(Exit):
            return self._sequence(node.children)
        return None

    def _run_redirected_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        return self._run(body) if body is not None else None

    def _run_negated_command(self, node: Node) -> bool | None:
        result = self._run(node.named_children[0]) if node.named_children else None
        return None if result is None else not result

    def _run_list(self, node: Node) -> bool | None:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next(grammar.text(child) for child in node.children if child.type in ("&&", "||"))
        result = self._run(left)
        if result is None:
            self._perhaps([[right]])
            return None
        return self._run(right) if result is (operator == "&&") else result

    def _run_if_statement(self, node: Node) -> bool | None:
        unknown: list[Sequence[Node]] = []
        for tests, body in grammar.branches(node):
            holds = self._sequence(tests) if tests else True
            if holds is None:
                unknown.append(body)
            elif holds:
                if not unknown:
                    return self._sequence(body)
                unknown.append(body)
                break
        self._perhaps(unknown)
        return None if unknown else True

    def _run_case_statement(self, node: Node) -> bool | None:
        subject = node.child_by_field_name("value")
        text = self._word(subject) if subject is not None else None
        items = [child for child in node.named_children if child.type == "case_item"]
        if text is None:
            self._perhaps([grammar.case_body(item) for item in items])
            return None
        for item in items:
            if any(conditions.fits(text, self._word(p)) for p in item.children_by_field_name("value")):
                return self._sequence(grammar.case_body(item))
        return True

    def _run_for_statement(self, node: Node) -> bool | None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = node.children_by_field_name("value")
        if name is None or body is None:
            return None
        words: list[str | None] = []
        for value in values:
            everything = grammar.text(value).strip('"') in ("$@", "$*")
            words += self.state.arguments if everything else [self._word(value)]
        with self.state.until(Break, Continue):
            for word in words:
                self.state.assign(grammar.text(name), word, grammar.line(node))
                with suppress(Continue):
                    self._run(body)
        return True

    def _run_while_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        tests = node.children_by_field_name("condition")
        if body is None:
            return None
        with self.state.until(Break, Continue):
            while holds := self._sequence(tests):
                with suppress(Continue):
                    self._run(body)
            if holds is None:
                self._perhaps([[body]])
                return None
        return True

    def _run_declaration_command(self, node: Node) -> bool | None:
        return self._sequence([child for child in node.named_children if child.type == "variable_assignment"])

    def _run_variable_assignment(self, node: Node) -> bool | None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            return True
        self._read = ""
        text = self._word(value) if value is not None else ""
        if any(child.type == "+=" for child in node.children):
            before = self.state.value(grammar.text(name))
            text = None if before is None or text is None else before + text
        self.state.assign(grammar.text(name), text, grammar.line(node), self._read)
        return True

    def _run_command(self, node: Node) -> bool | None:
        head = node.child_by_field_name("name")
        if head is None:
            return self._sequence(node.named_children)
        for assignment in node.named_children:
            # "x=a-$2" looks to the grammar like a command named 2 with x=a- before it
            if assignment.type == "variable_assignment" and not grammar.apart(assignment, head):
                self.state.assign(grammar.text(assignment).partition("=")[0], None, grammar.line(node))
                return None
        name = self._word(head)
        arguments = grammar.words(node, self._word)
        if name is None:
            return None
        if name == "exit":
            self.state.status = (arguments[0] if arguments else "0") or "?"
            raise Exit
        if name in _LEAVE:
            raise _LEAVE[name]
        if name == "shift":
            del self.state.arguments[:1]
            return True
        if name == "test":
            return conditions.words_hold(arguments)
        if name in ("true", ":", "false"):
            return name != "false"
        if name == "echo" and self._echoed is not None:
            self._echoed.append(
                None if None in arguments else " ".join(str(argument) for argument in arguments)
            )
            return True
        if not self.state.doubts:
            self.state.calls.append(Call(name, tuple(arguments), grammar.line(node)))
        function = self.state.functions.get(name)
        return None if function is None else self._function(function, arguments)

    # ------------------------------------------------------------------ pieces
    def _function(self, node: Node, arguments: Sequence[str | None]) -> bool | None:
        body = node.child_by_field_name("body")
        if body is None or self._depth >= _DEPTH:
            return None
        outer, self.state.arguments = self.state.arguments, list(arguments)
        self._depth += 1
        try:
            with self.state.until(Return):
                return self._run(body)
        finally:
            self.state.arguments = outer
            self._depth -= 1
        return None

    def _perhaps(self, branches: Sequence[Sequence[Node]]) -> None:
        """Make unknown whatever these branches would change: nobody knows which of them is taken."""
        changed: dict[str, Assigned] = {}
        doubts: set[type[Leave]] = set()
        for branch in branches:
            with self.state.aside(calls=False):
                before = dict(self.state.variables)
                try:
                    self._sequence(branch)
                except Exit:
                    pass  # then there is nothing left to know
                except Leave as end:
                    doubts.add(type(end))
                for name, assigned in self.state.variables.items():
                    if before.get(name) != assigned:
                        changed[name] = Assigned(None, assigned.line)
        self.state.variables.update(changed)
        self.state.doubts |= doubts

    def _word(self, node: Node) -> str | None:
        return expand(node, self.state.value, self._output)

    def _output(self, node: Node) -> str | None:
        """Return what a command substitution gives, None if it is unknown."""
        command = (
            grammar.text(node)
            .removeprefix("$(")
            .removeprefix("`")
            .removesuffix(")")
            .removesuffix("`")
            .strip()
        )
        if command in self._outputs:
            return self._outputs[command]
        if command.startswith("cat ") and "|" not in command:
            words = [self._word(word) for word in node.named_children[0].children_by_field_name("argument")]
            text = self._printed(words[0]) if len(words) == 1 and words[0] else None
            self._read = (words[0] or "") if text is not None else ""
            return text.rstrip("\n") if text is not None else None
        outer, self._echoed = self._echoed, []
        try:
            with self.state.aside(calls=False), suppress(Leave):
                if self._sequence(node.named_children) is None and not self._echoed:
                    return None
            return None if None in self._echoed else "\n".join(str(text) for text in self._echoed)
        finally:
            self._echoed = outer
