"""How single values look on a page: times, unknown values, states, icons, form fields, and an action as code."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django import template
from django.conf import settings
from django.db.models import QuerySet
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple, RadioSelect
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import get_language, pgettext, to_locale
from django.utils.translation import gettext as _

from controlplane.accounts.identity_settings import IdentityProvider
from controlplane.accounts.operators import is_operator
from controlplane.accounts.passkeys import host_name, passkey_place
from controlplane.accounts.second_factor import address_is_unconfirmed
from controlplane.common.sentences import in_words, say
from controlplane.common.zones import zone_of
from controlplane.console.acts import Act
from controlplane.console.pills import Pill, pill_of
from controlplane.insight.availability import Waiting, figures_awaited
from controlplane.insight.models import Job, JobRun
from controlplane.insight.selectors import counted, failures_open
from controlplane.status.models import Incident, Maintenance, Part
from controlplane.status.selectors import incidents_open, maintenance_announced
from controlplane.tenants.models import Tenant
from controlplane.tenants.selectors import tenant_list
from controlplane.topics.bodies import Masking, ShownBody

register = template.Library()

UNKNOWN_TEXT = "–"
_SHOWN_MAX = 3
THEMES = ("system", "light", "dark")


def unknown() -> SafeString:
    """What stands where a value is not known: never 0, never nothing."""
    return format_html('<span class="unknown" title="{}">{}</span>', _("not known"), UNKNOWN_TEXT)


@register.filter
def part_name(part: str) -> str:
    """Return what people call a part of the platform."""
    return Part(part).label


@register.simple_tag
def shown_incidents() -> list[Incident]:
    """Return the open incidents, which every page of the console shows."""
    return list(incidents_open()[:_SHOWN_MAX])


@register.simple_tag
def shown_maintenance() -> list[Maintenance]:
    """Return the maintenance that runs or begins within a day."""
    return list(maintenance_announced()[:_SHOWN_MAX])


@register.simple_tag
def identity_providers() -> tuple[IdentityProvider, ...]:
    """Return whom people may log in with beside their password."""
    providers: tuple[IdentityProvider, ...] = settings.HIGHWATER_IDENTITY_PROVIDERS
    return providers


@register.filter
def or_unknown(value: Any) -> Any:
    """Return the value, or the mark of the unknown for None and the empty string. 0 is a value."""
    return unknown() if value is None or value == "" else value


@register.filter
def number(value: int | Literal[""] | None) -> str | SafeString:
    """Return an integer with thin separators, `1 234 567`, or the mark of the unknown: for None, and for the empty
    string that templates make of an attribute of None.
    """
    return unknown() if value is None or value == "" else f"{value:,}".replace(",", "\u202f")


@register.filter
def addresses(text: str) -> SafeString:
    """Return name servers' addresses, `a:1;b:2`, so that a narrow column breaks the line between two of them."""
    first, *others = text.split(";")
    found = format_html("{}", first)
    for other in others:
        found = format_html("{};<wbr>{}", found, other)
    return found


@register.filter
def per_second(value: float | Literal[""] | None) -> str | SafeString:
    """Return a rate as a person reads it, `3.9/s` or `1 234/s`, or the mark of the unknown."""
    if value is None or value == "":
        return unknown()
    return f"{value:.1f}/s" if value < 9.95 else f"{number(round(value))}/s"


@register.filter
def percent(value: float | Literal[""] | None) -> str | SafeString:
    """Return a share from 0 to 1 as `37 %`, or the mark of the unknown."""
    return unknown() if value is None or value == "" else in_words(say("%(percent)s %%", percent=f"{100 * value:.0f}"))


@register.filter
def byte_size(value: int | Literal[""] | None) -> str | SafeString:
    """Return a size in bytes as a person reads it: `512 B`, `1.5 KiB`, `4.0 MiB`."""
    if value is None or value == "":
        return unknown()
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{value} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: the last unit takes every size")


@register.simple_tag(takes_context=True)
def timestamp(context: template.Context, value: datetime | None, precision: str = "minutes") -> SafeString:
    """Return a <time>: short and in the tenant's zone on the page, in UTC to the millisecond in its title.

    `precision` is `minutes`, `seconds` or `milliseconds`: how exactly it is shown on the page; `clock` is milliseconds
    without the day, `brief` seconds without year and zone, for a column of many.
    """
    if value is None:
        return unknown()
    moment = value.astimezone(UTC)
    milliseconds = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
    tenant = context.get("tenant")
    if isinstance(tenant, Tenant) and tenant.time_zone != "UTC":
        moment = moment.astimezone(zone_of(tenant.time_zone))
    shown = {
        "minutes": f"{day_words(moment)} {moment:%H:%M}",
        "seconds": f"{day_words(moment)} {moment:%H:%M:%S}",
        "milliseconds": f"{day_words(moment)} {moment:%H:%M:%S}.{moment.microsecond // 1000:03d}",
        "brief": f"{day_words(moment, with_year=False)} {moment:%H:%M:%S}",
        "clock": f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}",
    }[precision]
    return format_html(
        '<time datetime="{}Z" title="{} UTC">{} {}</time>',
        milliseconds.replace(" ", "T"),
        milliseconds,
        shown,
        "" if precision == "brief" else zone_mark(moment),
    )


def day_words(moment: datetime, *, with_year: bool = True) -> str:
    """Return a day as it stands before a time: `24 Nov 2026,`, or `2026-11-24` on a page in Chinese."""
    if get_language() == "zh-hans":
        return f"{moment:%Y-%m-%d}" if with_year else f"{moment:%m-%d}"
    return f"{moment.day} {moment:%b %Y}," if with_year else f"{moment.day} {moment:%b},"


def zone_mark(moment: datetime) -> str:
    """Return what stands after a time: `UTC`, `CET`, or `UTC+03` where the zone has no letters of its own."""
    name = moment.tzname() or "UTC"
    return f"UTC{name}" if name[:1] in "+-" else name


@register.filter
def duration(value: timedelta | None) -> str:
    """Return a length of time: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 5 min`."""
    if value is None:
        return unknown()
    seconds = max(value.total_seconds(), 0.0)
    if seconds < 9.95:
        return say("%(seconds)s s", seconds=f"{seconds:.1f}")
    if seconds < 59.5:
        return say("%(seconds)s s", seconds=f"{seconds:.0f}")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return say("%(minutes)s min %(seconds)s s", minutes=minutes, seconds=rest) if rest else _minutes(minutes)
    hours, rest = divmod(minutes, 60)
    return say("%(hours)s h %(minutes)s min", hours=hours, minutes=rest) if rest else say("%(hours)s h", hours=hours)


def _minutes(minutes: int) -> str:
    return say("%(minutes)s min", minutes=minutes)


@register.filter
def seconds(value_ms: int | None) -> str:
    """Return milliseconds as seconds, `0.04 s` or `4.62 s`; from a minute on as a length of time."""
    if value_ms is None:
        return unknown()
    if value_ms >= 60_000:
        return duration(timedelta(milliseconds=value_ms))
    return say("%(seconds)s s", seconds=f"{value_ms / 1000:.2f}")


@register.filter
def age(value: datetime | None) -> str:
    """Return how long ago a moment was, as `duration` says it."""
    return unknown() if value is None else duration(timezone.now() - value)


@register.simple_tag
def icon(name: str, size_px: int = 18) -> SafeString:
    """Return one drawing of img/icons.svg, hidden from screen readers: the text beside it says what it means."""
    return format_html(
        '<svg width="{}" height="{}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        size_px,
        size_px,
        static("img/icons.svg"),
        name,
    )


@register.inclusion_tag("console/parts/pill.html")
def pill(state: str, words: str = "") -> dict[str, Pill]:
    """Show a state in a word with a shape and a colour. `words` replaces the usual word."""
    found = pill_of(state)
    return {"pill": Pill(found.tone, words or found.words, found.state)}


@register.inclusion_tag("console/parts/field.html")
def field(bound: BoundField, optional: bool = False) -> dict[str, Any]:
    """Show a form field: label, control, hint, and its errors beside it. `optional` says so after the label."""
    widget = bound.field.widget
    return {
        "field": bound,
        "optional": optional or not bound.field.required,
        "is_check": isinstance(widget, CheckboxInput),
        "is_choice": isinstance(widget, (RadioSelect, CheckboxSelectMultiple)),
    }


@register.inclusion_tag("console/parts/as_code.html")
def as_code(
    act: Act, part_id: str, summary: str = say("The same with curl, Python or highwater"), *, of_list: bool = False
) -> dict[str, Any]:
    """Show an action as code that does the same. `part_id` must be unique on the page; forms name it in `data-code` or `data-curl`.

    `of_list` is for a button that each row of a list has: the code is about the first row with it, and says so.
    """
    is_operators = act.path.startswith("/api/v1/operator/")
    return {"act": act, "part_id": part_id, "summary": summary, "of_list": of_list, "is_operators": is_operators}


@register.inclusion_tag("console/parts/copyable.html")
def copyable(value: str, part_id: str, label: str) -> dict[str, str]:
    """Show a value to take away, with a copy button. `label` names it for screen readers."""
    return {"value": value, "part_id": part_id, "label": label}


@register.filter(name="in_words")
def words_of(text: str) -> str:
    """Return a sentence in the language of the page, for filters that take plain strings only."""
    return in_words(text)


@register.filter
def ended(text: str) -> str:
    """Return a sentence with the mark at its end that it may lack, as what a broker answered does: another one follows."""
    words = in_words(text).rstrip()
    return words if not words or words[-1] in ".!?…。" else words + pgettext("mark", ".")


@register.filter
def coded(text: str) -> SafeString:
    """Return a sentence of the API, in which names stand between `backquotes`, with those as code."""
    parts = in_words(text).split("`")
    if len(parts) % 2 == 0:  # one quote is alone: a mark like any other
        return format_html("{}", in_words(text))
    marked = (format_html("<code>{}</code>", part) if place % 2 else part for place, part in enumerate(parts))
    return format_html_join("", "{}", ((part,) for part in marked))


_ENCODINGS = {
    "utf-8": say("UTF-8 text"),
    "json": say("JSON, indented"),
    "hex": say("Binary, shown in hexadecimal"),
    "base64": say("Shown in base64"),
    "protobuf": say("Protobuf, shown as JSON"),
}


@register.filter
def body_preview(body: ShownBody) -> str:
    """Return a body for a list, where it has two lines: JSON that was indented goes on in the first."""
    return re.sub(r"\n *", " ", body.text) if body.encoding in ("json", "protobuf") else body.text


@register.filter
def body_label(body: ShownBody) -> str:
    """Return what a shown body is: its encoding, its size, and whether it is cut. A cut body is never shown as if it were whole."""
    size = byte_size(body.size_bytes)
    if body.masking is not Masking.NONE:
        size = say("at most %(size)s", size=size)
    if body.masking is Masking.WITHHELD:
        return say("Withheld from your role by a masking rule, %(size)s", size=size)
    encoding = _ENCODINGS[body.encoding]
    if body.masking is Masking.MASKED:
        encoding = say("%(encoding)s, with masked values", encoding=encoding)
    if body.encoding == "protobuf" and body.truncated:
        return say(
            "Protobuf of %(size)s, the first %(shown)s of its JSON", size=size, shown=byte_size(body.shown_bytes)
        )
    if not body.truncated:
        return say("%(encoding)s, %(size)s", encoding=encoding, size=size)
    return say(
        "%(encoding)s, the first %(shown)s of %(size)s",
        encoding=encoding,
        shown=byte_size(body.shown_bytes),
        size=size,
    )


_PERM_WORDS = {2: say("Write only"), 4: say("Read only"), 6: say("Read and write")}


@register.filter
def perm_words(perm: int) -> str:
    """Return RocketMQ's topic permission (4 read, 2 write, 6 both) in words."""
    return _PERM_WORDS.get(perm, str(perm))


@register.simple_tag(takes_context=True)
def open_failures(context: template.Context) -> list[JobRun]:
    """Return the jobs' failures that an operator of the platform has to look at; nothing for anyone else."""
    request = context.get("request")
    return failures_open() if request is not None and is_operator(request.user) else []


@register.simple_tag
def first_figures_awaited() -> Waiting | None:
    """Return why no usage was ever counted on this platform, in a sentence; None as soon as some was."""
    return figures_awaited(timezone.now())


@register.inclusion_tag("console/parts/counted.html", takes_context=True)
def usage_counted(context: template.Context) -> dict[str, Any]:
    """Show until when the figures of usage go, when the next ones come, and why there are none."""
    return {"counted": counted(Job.USAGE_BILLING), "tenant": context.get("tenant")}


@register.filter
def span(run: JobRun) -> str | SafeString:
    """Return the range of a run on one line of a table: `22 Nov, 19:00 – 19:15`; UTC."""
    if run.range_from is None or run.range_to is None:
        return say("usual")
    begin, end = run.range_from.astimezone(UTC), run.range_to.astimezone(UTC)
    return format_html(
        '<span class="nowrap" title="{}">{}</span> – <span class="nowrap">{}</span>',
        say("%(begin)s to %(end)s UTC", begin=f"{begin:%Y-%m-%d %H:%M}", end=f"{end:%Y-%m-%d %H:%M}"),
        f"{day_words(begin, with_year=False)} {begin:%H:%M}",
        f"{end:%H:%M}" if begin.date() == end.date() else f"{day_words(end, with_year=False)} {end:%H:%M}",
    )


@register.simple_tag(takes_context=True)
def address_unconfirmed(context: template.Context) -> bool:
    """Return whether the user must confirm an address before a second factor can be set up."""
    return address_is_unconfirmed(context["user"])


@register.simple_tag(takes_context=True)
def passkey_obstacle(context: template.Context) -> str:
    """Why the present page can't use passkeys, as a sentence, with a link to where it can; empty where it can."""
    place = passkey_place(settings.HIGHWATER_PUBLIC_URL)
    if not place.is_usable:
        return say(
            "Passkeys need this console to have a host name and HTTPS. The platform’s operators can set that up."
        )
    request = context["request"]
    if host_name(request.get_host()) != place.host:
        return format_html(
            '{} <a href="{}">{}</a>',
            say("Passkeys work at %(origin)s only, where you log in once more.", origin=place.origin),
            f"{place.origin}{request.get_full_path()}",
            say("Open this page there"),
        )
    return ""


@register.simple_tag(takes_context=True)
def my_tenants(context: template.Context) -> QuerySet[Tenant]:
    """Return the tenants of the logged-in user, for the switcher in the top bar."""
    return tenant_list(context["request"].user).order_by("name")


@register.inclusion_tag("console/parts/language_switch.html", takes_context=True)
def language_switch(context: template.Context) -> dict[str, Any]:
    """A form that changes the language of the pages. Each language is named in itself."""
    return {
        "languages": settings.LANGUAGES,
        "language": get_language(),
        "next": context["request"].get_full_path(),
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag
def page_language() -> str:
    """The language of the page for its `lang`: `en`, or `zh-Hans`."""
    return to_locale(get_language() or "en").replace("_", "-")


@register.inclusion_tag("console/parts/theme_switch.html", takes_context=True)
def theme_switch(context: template.Context) -> dict[str, Any]:
    """Show the switch between light, dark and the system's choice."""
    return {
        "themes": [("system", _("System")), ("light", _("Light")), ("dark", _("Dark"))],
        "theme": chosen_theme(context),
        "cookie": settings.HIGHWATER_THEME_COOKIE_NAME,
        # A page that answers a POST says where it can be seen again; its own address may take POST only.
        "next": context.get("seen_again_at") or context["request"].get_full_path(),
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag(takes_context=True)
def chosen_theme(context: template.Context) -> str:
    """Return `light`, `dark` or `system`: the reader's choice, from a cookie, so that the first paint is right."""
    theme = context["request"].COOKIES.get(settings.HIGHWATER_THEME_COOKIE_NAME, "")
    return theme if theme in THEMES else "system"
