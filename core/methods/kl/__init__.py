"""Methods under the KL condition: their settings, schedules of public figures, and what their theorems say."""
