"""What is wrong with a value, explained so that its sender can repair it in one attempt.

issue        `Issue`, and `find_issues`, which turns the validator's errors into issues
location     where an error is: the nearest branch of a choice, the value and the schema there
explanation  the wording of each kind of error
suggestions  how to repair a value
"""

from toolpost.contracts.issues.issue import (
    ISSUE_LIMIT,
    Issue,
    find_issues,
    find_issues_quickly,
    issues_of_unencodable,
    make_generic_issue,
    parse_issue,
)

__all__ = [
    "ISSUE_LIMIT",
    "Issue",
    "find_issues",
    "find_issues_quickly",
    "issues_of_unencodable",
    "make_generic_issue",
    "parse_issue",
]
