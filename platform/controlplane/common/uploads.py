"""Files that come with forms."""

from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadhandler import MemoryFileUploadHandler


class SmallUploadHandler(MemoryFileUploadHandler):
    """Keeps a form's files in memory, and refuses a form that is larger than any other request.

    Django looks at the size of a form's texts alone, and writes files of any size to the disk before a view sees who sends them.
    """

    def handle_raw_input(
        self, input_data: Any, META: Any, content_length: int, boundary: Any, encoding: Any = None
    ) -> None:
        """Raise RequestDataTooBig before the first byte is read."""
        if content_length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig("The form is larger than DATA_UPLOAD_MAX_MEMORY_SIZE.")
        self.activated = True
