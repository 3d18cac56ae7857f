"""Builds of a Rust program by Debian's rustc and cargo, with Debian's crates.

rustc takes a sampled profile only with options that it calls unstable, which RUSTC_BOOTSTRAP allows.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.gains.builds import NotComparableError, Toolchain, flow_flags
from tests.gains.programs import Program

# Those of Debian, whatever else is installed.
_CARGO, _RUSTC = "/usr/bin/cargo", "/usr/bin/rustc"
_TARGET = "x86_64-unknown-linux-gnu"
# Where Debian's packages have the sources of crates.
_CRATES = "/usr/share/cargo/registry"
_CONFIGURED = f"""[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "{_CRATES}"
"""
_FLAGS = (
    "-Cdebuginfo=2",
    "-Zdebug-info-for-profiling",
    "-Csymbol-mangling-version=v0",
    "-Cforce-frame-pointers=yes",
    "-Clink-arg=-Wl,--build-id=sha1",
)


class RustBuilder:
    """Builds a program of Rust, and the crates that it uses, as `Builder` documents."""

    def __init__(self, program: Program, toolchain: Toolchain, folder: Path) -> None:
        for tool in (_CARGO, _RUSTC):
            if not Path(tool).exists():
                raise FileNotFoundError(f"there is no {tool}: apt install {Path(tool).name}")
        self.toolchain = toolchain
        self.flags = " ".join(("--release", *_FLAGS))
        self._program, self._folder = program, folder
        (folder / "sources").mkdir()
        (self._crate,) = program.unpack(folder / "sources")
        (self._crate / ".cargo").mkdir()
        (self._crate / ".cargo" / "config.toml").write_text(_CONFIGURED)
        said = toolchain.run([_RUSTC, "--version", "--verbose"])
        version, llvm = (
            re.search(rf"^{word}: ([\d.]+)", said, re.MULTILINE) for word in ("release", "LLVM version")
        )
        assert version is not None
        assert llvm is not None
        self.compiler = f"rustc {version[1]}"
        if int(llvm[1].split(".")[0]) != toolchain.version:
            raise NotComparableError(f"rustc has LLVM {llvm[1]}, and clang is {toolchain.version}")
        self.flow = tuple(f"-Cllvm-args={flag}" for flag in flow_flags(toolchain) if flag != "-mllvm")
        self._built: dict[Path, tuple[str, ...]] = {}

    def build(self, name: str, profile: Path | None = None, *, flow: bool = False) -> Path:
        """Build as `Builder` documents."""
        guided = [] if profile is None else [f"-Zprofile-sample-use={profile}"]
        return self._build(name, *guided, *(self.flow if flow else ()))

    def instrumented(self) -> Path:
        """Build as `Builder` documents. Debian's rustc has no runtime for counts of its own; clang's does."""
        runtime = self.toolchain.run(["clang", "-print-file-name=libclang_rt.profile-x86_64.a"]).strip()
        counts = self._folder / "counts.profraw"
        counting = self._build(
            "counting",
            f"-Cprofile-generate={self._folder}",
            "-Zno-profiler-runtime",
            f"-Clink-arg={runtime}",
            "-Clink-arg=-lc",  # what the runtime calls
        )
        work = self._program.arguments(self._program.training)
        self.toolchain.run([str(counting), *work], {"LLVM_PROFILE_FILE": str(counts)})
        return self._build("instrumented", f"-Cprofile-use={self.toolchain.merge_counts(counts)}")

    def shared_flags(self, programs: Mapping[str, Path]) -> str:
        """Return the flags; programs by rustc don't say them, so that all must be from here."""
        for name, program in programs.items():
            if program not in self._built:
                raise NotComparableError(f"{name} wasn't built here")
        return f"cargo build {self.flags}"

    def _build(self, name: str, *flags: str) -> Path:
        binary, target = self._folder / name, self._folder / f"target-{name}"
        # If a target is named, the flags aren't for the programs that cargo runs to build crates.
        command = [_CARGO, "build", "--quiet", "--offline", "--release", "--target", _TARGET]
        environment = {
            "RUSTFLAGS": " ".join((*_FLAGS, *flags)),
            "RUSTC": _RUSTC,
            "RUSTC_BOOTSTRAP": "1",
            "CARGO_TARGET_DIR": str(target),
            "CARGO_HOME": str(self._folder / "cargo"),
        }
        self.toolchain.run(command, environment, self._crate)
        shutil.copy(target / _TARGET / "release" / self._program.name, binary)
        self._built[binary] = flags
        return binary
