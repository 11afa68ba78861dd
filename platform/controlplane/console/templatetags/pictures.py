"""Drawings on pages."""

from django import template

from controlplane.console.group_picture import GroupPicture, group_picture
from controlplane.failover.role_map import GroupRow

register = template.Library()


@register.inclusion_tag("console/parts/group_picture.html", name="group_picture")
def picture_of(group: GroupRow) -> dict[str, GroupPicture]:
    """Draw a group of the role map: who leads, who follows, how far behind, and how many copies SEND_OK means."""
    return {"picture": group_picture(group)}
