"""The house keeps its own rules: contracts, names, statuses, and no torch where torch must not be."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import core.base.errors
from api.errors import STATUS
from core.base.errors import Refusal
from core.methods.registry import METHODS, plans_of
from tests.support.planted import PAGE, planted, table

ROOT = Path(__file__).parent.parent
TOPS = ("api", "core", "workers", "farthing", "studies")
STUDIED = ROOT / "studies" / "tests"
SOURCES = sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py") if STUDIED not in path.parents)
TESTS = sorted(path for top in (ROOT / "tests", STUDIED) for path in top.rglob("test_*.py"))
PLANTED = 199
"""Tests that plant a bug: fewer of them would be a loss."""
OF_A_SET = re.compile(r"""parametrize\(\s*"[^"]*",\s*(set\(|frozenset\(|\{[^{}:]*[^{}:\s][^{}:]*\})""")
RANDOM = re.compile(r"\b(torch\.(randn|rand|normal|randint|randperm)\b|np\.random|numpy\.random|import random\b)")


def refusals(base: type[Refusal] = Refusal) -> list[type[Refusal]]:
    return [base, *(found for child in base.__subclasses__() for found in refusals(child))]


def test_imports_go_down_the_stairs() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_api_and_its_use_cases_import_no_torch_and_start_soon() -> None:
    """Nor what takes a third of their start and hardly any request needs."""
    code = "import sys, api.app, api.__main__, core.service, pkgutil, importlib\n"
    code += "[importlib.import_module(m.name) for p in (__import__('api.routes').routes, core.service)"
    code += " for m in pkgutil.iter_modules(p.__path__, p.__name__ + '.')]\n"
    code += "print([m for m in ('torch', 'alembic', 'scipy.integrate', 'scipy.stats') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("cases", ["{f for f in found}", "{1, 2}", "set(a)"])
def test_a_set_of_cases_is_seen(cases: str) -> None:
    assert OF_A_SET.search('parametrize("n", ' + cases + ")")


def test_every_process_collects_the_same_tests_in_the_same_order() -> None:
    mixed = [str(path.relative_to(ROOT)) for path in TESTS if OF_A_SET.search(path.read_text())]
    assert not mixed, "sets of functions, or of strings, have an order of their own in each process"


def test_the_list_of_bugs_is_that_of_the_tests() -> None:
    """A test that plants a bug is taken out of the list by hand alone: `python -m tests.support.planted` writes it."""
    page = PAGE.read_text()
    assert page.endswith(table()), "run python -m tests.support.planted, and say in the commit why a bug went"
    assert sum(map(len, planted().values())) >= PLANTED


def test_each_refusal_has_a_code_and_a_status_of_its_own() -> None:
    known = [
        refusal for refusal in refusals() if refusal is not Refusal and refusal.__module__ == core.base.errors.__name__
    ]
    assert len({refusal.code for refusal in known}) == len(known)
    for refusal in known:
        assert refusal.__doc__, refusal
        assert 400 <= STATUS[refusal] < 600, refusal
        assert STATUS[refusal] != 402, "generated clients treat it as a temporary failure"


def test_budget_refusals_are_never_retried_by_generated_clients() -> None:
    assert STATUS[core.base.errors.BudgetExhausted] == 403
    assert STATUS[core.base.errors.BudgetReserved] == 409


def test_each_module_fits_a_sitting_and_says_what_it_is() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}
    assert [name for name, text in texts.items() if len(text.splitlines()) > 400] == []
    assert [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []


VIEWS = [
    *sorted((ROOT / "farthing").glob("*.py")),
    *sorted((ROOT / "core/service").glob("*views.py")),
    ROOT / "api/schemas.py",
]


def test_each_field_of_an_answer_says_what_it_is() -> None:
    assert len(VIEWS) > 8
    found = {path.name: unsaid(path.read_text()) for path in VIEWS}
    assert {name: fields for name, fields in found.items() if fields} == {}


@pytest.mark.parametrize(
    ("field", "seen"),
    [
        ("rows: int", True),
        ('rows: int\n    """Records."""', False),
        ('rows: int | None\n    """Records."""', True),
        ('rows: int | None = None\n    """Records; None while pending."""', False),
        ('at: str\n    """   """', True),
        ("_kept: int", False),
        ('object: Literal["job"] = "job"', False),
    ],
)
def test_a_field_that_says_nothing_is_seen(field: str, seen: bool) -> None:
    assert bool(unsaid(f"class Cost(View):\n    {field}\n")) is seen
    assert bool(unsaid(f"class Cost(View): ...\nclass Price(Cost):\n    {field}\n")) is seen


def unsaid(text: str) -> list[str]:
    """Return the public fields of a module's views without a docstring, or with one that is silent about null."""
    found, views = [], {"View", "Cost", "CostFigures"}
    for kind in ast.parse(text).body:
        if not isinstance(kind, ast.ClassDef) or not views & {
            base.id for base in kind.bases if isinstance(base, ast.Name)
        }:
            continue
        views.add(kind.name)
        for field, after in zip(kind.body, [*kind.body[1:], None], strict=True):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            name, annotation = field.target.id, ast.unparse(field.annotation)
            if name.startswith("_") or (name == "object" and annotation.startswith("Literal")):
                continue
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            silent = "None" in annotation and not re.search(r"\b(null|None)\b", str(said))
            if not str(said).strip() or silent:
                found.append(f"{kind.name}.{name}")
    return found


def test_no_module_branches_on_a_method_outside_its_package() -> None:
    named = {kind.__name__ for method in METHODS for kind in (method, *plans_of(method))}
    named |= {"WithIntervals", "SpiderSettings", "SpiderFigures", "DriftFigures", "EscapeSettings", "EscapePlan"}
    product = {"api", "core", "farthing", "workers"}  # a study is about the methods that it names
    rooms = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in product]
    rooms = [path for path in rooms if ROOT / "core" / "methods" not in path.parents]
    found = {path.relative_to(ROOT).as_posix(): branches(path.read_text(), named) for path in rooms}
    assert not {path: count for path, count in found.items() if count}


def test_a_branch_on_a_method_would_be_seen() -> None:
    assert branches("isinstance(x, A | B) or isinstance(x, C)", {"B"}) == 1
    assert branches("match x:\n    case B(): pass\n    case C(): pass", {"B"}) == 1


def branches(text: str, named: set[str]) -> int:
    """Return how often a source asks whether something is of one of these classes."""
    count = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            count += any(isinstance(one, ast.Name) and one.id in named for one in ast.walk(node.args[1]))
        count += isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name) and node.cls.id in named
    return count


def test_random_numbers_are_made_in_one_room() -> None:
    rooms = {ROOT / "core" / "mechanisms", ROOT / "studies" / "benchmarks"}  # rivals in benchmarks draw from NumPy
    strangers = [path for path in SOURCES if path.parent not in rooms and draws(path.read_text())]
    assert strangers == []


KEPT_IN = {"db", "records", "ledger", "jobs", "access", "operations"}
"""Rooms of `core` whose subject is something kept."""


def test_sql_is_written_in_the_rooms_of_what_is_kept() -> None:
    strangers = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if any(name.split(".")[0] == "sqlalchemy" for name in names) and not KEPT_IN & set(path.parts[:-1]):
            strangers.append(path.relative_to(ROOT))
    allowed = {Path("core/service"), Path("core/training")}  # they hold sessions, and write no statement
    assert [path for path in strangers if path.parent not in allowed and path not in allowed] == []


MARKUP = re.compile(
    r"(?<!\?P)</?(a|br|div|dl|h[1-6]|html|img|li|p|pre|script|span|style|svg|table|td|th|tr|ul)(?=[\s/>])[^<>]*>"
)


def test_markup_is_made_by_templates() -> None:
    """A string put together by hand may forget an escape that templates make. The planted bug is a cell of a table."""
    rooms = ("core", "workers", "farthing")
    found = [str(path.relative_to(ROOT)) for top in rooms for path in sorted((ROOT / top).rglob("*.py"))
             if MARKUP.search(path.read_text())]  # fmt: skip
    assert not found, found
    assert MARKUP.search('f"<td>{cell}</td>"'), "the planted bug"


def test_images_hold_the_service_and_no_study() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = set(re.findall(r"^COPY (\w+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == {"api", "core", "farthing", "migrations", "workers"}
    assert {one for one in sent if (ROOT / one).is_dir()} == copied


def test_the_random_rule_sees_a_planted_call() -> None:
    assert draws("x = torch.randn(3)")
    assert not draws('"""torch.randn is unsafe"""')


def draws(text: str) -> bool:
    """Say whether a source's code makes random numbers, whatever it says of them; most have no word of them at all."""
    return any(word in text for word in ("rand", "normal")) and RANDOM.search(_code_of(text)) is not None


def _code_of(text: str) -> str:
    """Return the source without docstrings and comments."""
    return ast.unparse(_Bare().visit(ast.parse(text)))


class _Bare(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else node

    def _block(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if hasattr(node, "body") and not node.body:
            node.body = [ast.Pass()]
        return node

    visit_FunctionDef = visit_ClassDef = visit_AsyncFunctionDef = _block  # noqa: N815 - names that ast.NodeTransformer looks for


SIGNED_FORMS = ROOT / "farthing" / "certificate_forms.py"
"""Its classes have the names of the signed document's parts; the views beside it show the same things."""


def twice_defined(modules: dict[str, str]) -> dict[str, list[str]]:
    """Return public classes that several modules of one layer define, by name; `modules` are texts by their path."""
    found: dict[str, list[str]] = {}
    for path, text in modules.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.parametrize("top", TOPS)
def test_no_two_modules_of_a_layer_define_a_class_of_one_name(top: str) -> None:
    own = [path for path in SOURCES if (ROOT / top) in path.parents and path != SIGNED_FORMS]
    assert own
    assert twice_defined({str(path.relative_to(ROOT)): path.read_text() for path in own}) == {}


def test_a_class_that_is_defined_twice_is_seen() -> None:
    """The planted bug."""
    modules = {"core/a.py": "class Kept: ...", "core/b.py": "class Kept: ...", "core/c.py": "class _Kept: ..."}
    assert twice_defined(modules) == {"Kept": ["core/a.py", "core/b.py"]}


def test_each_package_takes_every_python_that_the_project_takes() -> None:
    """A package that asks for Python 3.11.5 keeps `make setup` from Debian 12, which has 3.11.2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    asked = {one.name: one.metadata.get("Requires-Python") for one in distributions()}
    assert len(asked) > 100
    assert {name: one for name, one in asked.items() if one and oldest not in SpecifierSet(one)} == {}
