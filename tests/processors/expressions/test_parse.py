import pytest

from errata.processors.expressions.errors import ExpressionError
from errata.processors.expressions.expression import compile_expression
from errata.processors.expressions.parse import MAX_DEPTH, MAX_LENGTH, MAX_NESTING
from errata.schemas.errors import ErrataError
from errata.schemas.fields import FieldType

FIELDS = {
    "price": FieldType("double"),
    "name": FieldType("string"),
    "at": FieldType("timestamp-millis"),
    "flag": FieldType("boolean"),
    "day": FieldType("date"),
    "id": FieldType("uuid"),
}


def refusal(text):
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text, FIELDS)
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [
        ("", 0, "one expression, found nothing"),
        ("--5", 0, "found nothing"),
        ("price; price", 0, "2 statements"),
        ("price;", 0, "one expression"),
        ("select 1", 0, "near 'select'"),
        ("price as p", 6, "near 'as'"),
        ("price +", 6, "an SQL expression"),
        ("price > 'a", 0, "parses as SQL"),
        ("price\n + prise", 9, "did you mean price?"),
        ("PRICE", 0, "did you mean price?"),
        ("zzz", 0, "the fields are at, day, flag, id, name, price"),
        ("t.price", 0, "found 't.price'"),
        ('price > "price"', 8, "write price or `price`"),
        ("price > 'x'", 0, "quotes make a string"),
        ("name like flag", 0, "a string literal as the pattern"),
        ("name like 'a!x' escape '!'", 0, "found !x"),
        ("name like 'x' escape 'ab'", 0, "escape 'ab'"),
        ("name rlike 'a(?i)b'", 11, "'?' at this place"),
        ("name rlike 'a\\\\bc'", 11, "a pattern of characters"),
        ("name rlike '(a$)'", 11, "'$' at this place"),
        ("name rlike 'a++'", 11, "'+' at this place"),
        ("name rlike '((a{999}){999}){999}'", 11, "moderate size"),
        ("name = 'it''s'", 7, "several side by side"),
        ("X'0g'", 0, "parses as SQL"),
        ("X'0_1'", 0, "bytes such as X'00ff'"),
        ("price in (select 1)", 0, "query"),
        ("price in ()", 0, "at least one value"),
        ("price[0]", 0, "bracket"),
        ("price is true", 0, "IS NULL"),
        ("price div 2", 0, "cast them to bigint"),
        ("uper(name)", 0, "found uper, which is not supported; did you mean upper?"),
        ("soundex(name)", 0, "found soundex"),
        ("upper()", 0, "1 argument of upper, found 0; upper(string) -> string"),
        ("round(price, 1, 2)", 0, "found 3"),
        ("upper(name, name)", 0, "found 2"),
        ("price + substring(name, 1, flag)", 27, "int as argument 3 of substring, found boolean"),
        ("replace(name, name, 'x')", 14, "a literal such as 'text' as argument 2 of replace"),
        ("round(price, 401)", 13, "at most 400 digits"),
        ("repeat(name, 10001)", 13, "at most 10000"),
        ("split_part(name, ',', 0)", 22, "from 1, or from -1"),
        ("date_trunc('fortnight', at)", 11, "one of year, quarter"),
        ("to_utc_timestamp(at, 'Mars/Base')", 21, "an IANA time zone"),
        ("sha2(name, 1)", 11, "one of (0, 224"),
        ("hour(price)", 5, "timestamp as argument 1 of hour, found double"),
        ("unix_millis(day)", 12, "found date"),
        ("greatest(price, name)", 0, "one common type for the operands of greatest"),
        ("interval 5 minutes", 0, "a date or timestamp to add"),
        ("at + interval 1 fortnight", 0, "interval 5 minutes, of one unit"),
        ("at + interval 1 day 2 hours", 0, "a date or timestamp to add"),
        ("price + interval 1 day", 0, "a date or timestamp next to the interval"),
        ("day - day", 0, "datediff(a, b)"),
        ("day > 'never'", 0, "write a date as"),
        ("id = 'x'", 0, "write a uuid as"),
        ("date '2026-02-30'", 5, "write a date as"),
        ("name = X'00'", 0, "one common type for the operands of ="),
        ("current_timestamp", 0, "currenttimestamp"),
        ("my_function(price)", 0, "my_function"),
        ("java_method('a', 'b')", 0, "java_method"),
        ("sum(price)", 0, "use it in .aggregate"),
        ("cast(price as date)", 5, "a type that can be cast to date"),
        ("cast(price as decimal(50,2))", 22, "p from 1 to 38"),
        ("cast(price as decimal(5,2,1))", 22, "p from 1 to 38"),
        ("try_cast(price as decimal(5,2) format 'x')", 9, "found format"),
        ("cast(price as uuid)", 5, "a cast to int, bigint"),
        ("at + 1", 0, "interval 5 minutes"),
        ("at - at", 0, "unix_millis(a) - unix_millis(b)"),
        ("at > 'yesterday'", 0, "write a timestamp as"),
        ("TIMESTAMP '2026-02-30'", 10, "write a timestamp as"),
        ("at > name", 0, "timestamp-millis and string"),
        ("flag + 1", 0, "two numbers for +, found boolean and int"),
        ("not price", 4, "a boolean for not"),
        ("price and flag", 0, "a boolean for and"),
        ("if(price, 1, 2)", 3, "a boolean for if"),
        ("-name", 1, "a number for -"),
        ("coalesce(price, name)", 0, "one common type for the operands of coalesce"),
        ("null", 0, "cast(null as bigint)"),
        ("1e400", 0, "a number"),
        ("1" * 39, 0, "38 digits"),
        ("60*60*24*30*1000", 0, "write the first operand with 64 bits"),
        ("name || price + 1", 0, "parentheses around a sum"),
        ("name || price - 1 || name", 0, "write a || (b + c)"),
        ("9223372036854775808L", 0, "64 bits before L"),
        ("price = 1 = flag", 0, "parentheses around"),
        ("flag = price < 1", 0, "parentheses around"),
        ("flag = not flag", 0, "parentheses around"),
        ("price between 1 and 2 = flag", 0, "parentheses around"),
    ],
)
def test_a_refusal_says_what_and_points_at_it(text, position, part):
    error = refusal(text)
    assert part in str(error)
    assert isinstance(error, ErrataError)
    assert error.position == position


def test_a_comparison_of_a_comparison_is_allowed_in_parentheses():
    compile_expression("flag = (price < 1)", FIELDS)


def test_a_field_in_backticks_is_a_field():
    assert compile_expression("`price`", FIELDS).columns == {"price"}


def test_the_length_is_capped():
    compile_expression("price" + " " * (MAX_LENGTH - 5), FIELDS)
    assert "at most" in str(refusal("price" + " " * (MAX_LENGTH - 4)))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1900 + "1" + ")" * 1900,
        "abs(" * 500,
        "not " * 900 + "flag",
        "- " * 1900 + "1",
        "case when " * 300,
        "flag = not " * 300 + "flag",
    ],
)
def test_deep_nesting_is_an_error_and_no_crash(text):
    assert refusal(text)


def test_nesting_up_to_the_cap_is_allowed():
    compile_expression("(" * MAX_NESTING + "price" + ")" * MAX_NESTING, FIELDS)
    assert "inside each other" in str(refusal("(" * (MAX_NESTING + 1) + "1" + ")" * 21))


def test_long_chains_are_capped_by_the_tree_depth():
    chain = " + ".join(["price"] * (MAX_DEPTH - 1))
    compile_expression(chain, FIELDS)
    assert "in a chain" in str(refusal(chain + " + price + price"))


def test_the_caret_stands_under_the_character():
    assert refusal("price\n + prise").caret == " + prise\n   ^"
