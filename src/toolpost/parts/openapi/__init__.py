"""APIs that an OpenAPI document describes, as tools.

settings     `[apis.NAME]`
document     reads a document: JSON or YAML, from a file or a URL; `yaml_process` is the process that reads YAML
schemas      converts its schemas to JSON Schema 2020-12
operations   finds its operations, and what each takes and answers
swagger      reads operations of Swagger 2.0 as if they were OpenAPI 3
serialize    writes arguments into a request, each in its own place
credentials  fills in what an operation's security asks for
client       sends requests to one origin
answers      turns responses into results and errors
tools        the plugin of an API
api          one API: its document read, its plugin made
served       all APIs, also when their settings or documents change
part         what the gateway is given; `commands` and `doctor` are what it brings
"""

from toolpost.parts import Command, Part

PART = Part(
    name="openapi",
    summary="APIs that an OpenAPI document describes, as tools.",
    opens="toolpost.parts.openapi.part:open_apis",
    settings=("toolpost.parts.openapi.settings:APIS",),
    doctor="toolpost.parts.openapi.doctor:ApisDoctor",
    importers={
        "openapi": Command(
            "toolpost.parts.openapi.commands:import_openapi", "Turn an API into tools, by its OpenAPI document."
        )
    },
)
