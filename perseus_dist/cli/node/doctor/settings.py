"""Settings files and variables, as the commands that they are for would read them."""

from collections.abc import Mapping

from perseus_dist.cli.node.doctor.settings_together import check_together
from perseus_dist.cli.settings.command_parser import command_parser
from perseus_dist.cli.settings.effective import Setting, check_sections, effective_settings, unknown_variables
from perseus_dist.cli.settings.files import CONFIG_VARIABLE, SettingsError, SettingsFile, candidate_files, read_file
from perseus_dist.cli.settings.keys import COMMAND_OF
from perseus_dist.messages.finding import Finding, Level


def inspect_settings(environ: Mapping[str, str]) -> tuple[list[Finding], list[Setting]]:
    """Read all files by themselves, and then the variables.

    Returns:
        What was found, and the settings of what can be used.
    """
    findings: list[Finding] = []
    files: list[SettingsFile] = []
    for path in candidate_files(environ):
        try:
            file = read_file(path, must_exist=bool(environ.get(CONFIG_VARIABLE)))
            if file is None:
                continue
            check_sections(file)
            settings = _settings([file], {})
        except SettingsError as error:
            findings.append(_refused(error, f"mend it; 'perseus-dist config --check {path}' tries it"))
        else:
            files.append(file)
            num_set = sum(not setting.is_default for setting in settings)
            findings.append(Finding(level=Level.OK, subject="settings", what=f"{path}: {num_set} in force"))
    findings += [
        Finding(
            level=Level.WARN,
            subject="settings",
            what=f"${name[:80] if name.isprintable() else ascii(name[:80])} is no setting, and is not read",
            remedy=f"the nearest is ${nearest}; 'perseus-dist config' shows all",
        )
        for name, nearest in unknown_variables(environ)
    ]
    try:
        settings = _settings(files, environ)
    except SettingsError as error:
        findings.append(_refused(error, "correct the variable"))
        settings = _settings(files, {})
    return [*findings, *_refused_together(settings)], settings


def _refused_together(settings: list[Setting]) -> list[Finding]:
    """Settings that a section's command would refuse; files that cannot be read are found beside the certificates."""
    findings = []
    for section in COMMAND_OF:
        try:
            check_together([one for one in settings if one.section == section and not one.is_default])
        except SettingsError as error:
            remedy = "correct one of them, if the command line does not give another; 'perseus-dist config' shows all"
            findings.append(Finding(level=Level.WARN, subject="settings", what=str(error), remedy=remedy))
    return findings


def _settings(files: list[SettingsFile], environ: Mapping[str, str]) -> list[Setting]:
    return [
        setting
        for section, command in COMMAND_OF.items()
        for setting in effective_settings(section, command_parser(command), files, environ)
    ]


def _refused(error: SettingsError, remedy: str) -> Finding:
    what, _, told = str(error).partition("; ")
    return Finding(level=Level.FAIL, subject="settings", what=what, remedy=told or remedy)
