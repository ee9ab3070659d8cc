"""Build a real program from a checkout of its sources, for try.py to fuzz.

python interop/build.py knet ~/kNet /tmp/knet
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

SERVERS = Path(__file__).parent / "servers"
SANITIZED = ("g++", "-g", "-O1", "-w", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
             "-fno-sanitize=vptr")  # fmt: skip
JARS = "gson reflections javassist slf4j-api guava jsr305"
NAMES = ("riptide", "knet", "eoudp", "netplay", "netplay-bin1", "netplay-bin2", "netplay-bin3")


def riptide(checkout: Path, folder: Path, *, empty: bool) -> list[str]:
    """Compile the library with the server for Mono; `empty`: one that reads empty datagrams."""
    library = checkout / "RiptideNetworking" / "RiptideNetworking"
    sources = []
    for source in sorted(library.rglob("*.cs")):
        text = source.read_text("utf-8-sig")
        if empty and source.name == "UdpPeer.cs":
            waits = "socket.Available > 0 && socket.Poll(ReceivePollingTime,"
            if waits not in text:
                sys.exit(f"{source} does not wait for bytes: it needs no --empty")
            text = text.replace(waits, "socket.Poll(0,")
        copy = folder / "source" / source.relative_to(library)
        copy.parent.mkdir(parents=True, exist_ok=True)
        # The one thing in it that is too new for Mono's compiler.
        copy.write_text(re.sub(r"(\w+) is null", r"ReferenceEquals(\1, null)", text), "utf-8")
        sources.append(copy)
    program = folder / "server.exe"
    run("mcs", "-debug", "-langversion:latest", "-nowarn:0649,1591,1635", f"-out:{program}",
        SERVERS / "riptide.cs", *sources)  # fmt: skip
    return ["mono", "--debug", str(program), "{port}"]


def knet(checkout: Path, folder: Path) -> list[str]:
    """Compile the library and the server with ASan and UBSan."""
    (folder / "kNetBuildConfig.h").touch()
    # Its newest revision reads the second name of the system, those before it the first one.
    options = ("-std=c++11", "-DUNIX", "-DKNET_UNIX", "-DKNET_LOGGING_SUPPORT_ENABLED",
               '-DDEBUG_CPP_NAME="kNet"', f"-I{checkout / 'include'}", f"-I{folder}")  # fmt: skip
    sources = [*checkout.glob("src/*.cpp"), *checkout.glob("src/unix/*.cpp"), SERVERS / "knet.cpp"]
    return [str(linked(folder, sources, options, "-lpthread")), "{port}"]


def eoudp(checkout: Path, folder: Path) -> list[str]:
    """Compile the engine's network with ASan and UBSan, and what it needs of the engine."""
    engine = checkout / "GameEngine" / "src"
    (folder / "misc" / "cpp").mkdir(parents=True, exist_ok=True)
    (folder / "misc" / "cpp" / "imgui_stdlib.h").write_text("#include <string>\n", "utf-8")
    below = ("", "Exodia", "Exodia/ECS", "Platform", "Network")
    options = ("-std=c++17", *(f"-I{engine / each}" for each in below), "-I/usr/include/imgui",
               f"-I{folder}")  # fmt: skip
    sources = [
        *(engine / "Network").glob("*.cpp"),
        engine / "Network" / "UDPSocket" / "UDPSocket.cpp",
        SERVERS / "eoudp.cpp",
        SERVERS / "eoudp_project.cpp",
    ]
    program = linked(
        folder, sources, options, "-limgui", "-lstb", "-lyaml-cpp", "-lspdlog", "-lfmt", "-lpthread"
    )
    # It writes a log into the folder it is started in.
    return ["sh", "-c", f"cd {shlex.quote(str(folder))} && exec ./{program.name} {{port}}"]


def netplay(checkout: Path, folder: Path, server: str, main: str) -> list[str]:
    """Compile the library, the messages of its example and the server."""
    path = ":".join(f"/usr/share/java/{jar}.jar" for jar in JARS.split())
    given = folder / "source" / "Main.java"
    given.parent.mkdir(exist_ok=True)
    given.write_bytes((SERVERS / server).read_bytes())
    classes = folder / "classes"
    sources = sorted((checkout / "src").rglob("*.java"))
    run("javac", "-nowarn", "-cp", path, "-d", classes, given, *sources)
    return ["java", "-Xmx256m", "-cp", f"{classes}:{path}", main, "{port}"]


def linked(folder: Path, sources: list[Path], options: tuple[str, ...], *libraries: str) -> Path:
    """Compile C++ sources and link them; return the program."""
    objects = [folder / f"{source.stem}.o" for source in sources]

    def compiled(source: Path, made: Path) -> None:
        run(*SANITIZED, *options, "-c", source, "-o", made)

    with ThreadPoolExecutor(cpu_count()) as pool:
        list(pool.map(compiled, sources, objects))
    program = folder / "server"
    run(*SANITIZED, *objects, "-o", program, *libraries)
    return program


def run(*words: str | Path) -> None:
    """Run a compiler, and end with its status where it fails."""
    done = subprocess.run([str(word) for word in words], check=False)  # noqa: S603 - compilers
    if done.returncode:
        sys.exit(f"{words[0]} ended with status {done.returncode}")


def main() -> None:
    """Build, and print how to fuzz what was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("checkout", type=Path, help="folder of its sources")
    parser.add_argument("folder", type=Path, help="where to put what is built")
    parser.add_argument("--empty", action="store_true", help="a Riptide that reads empty datagrams")
    options = parser.parse_args()
    checkout, folder = options.checkout.resolve(), options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.name == "riptide":
        command = riptide(checkout, folder, empty=options.empty)
    elif options.name == "knet":
        command = knet(checkout, folder)
    elif options.name == "eoudp":
        command = eoudp(checkout, folder)
    elif options.name == "netplay":
        command = netplay(checkout, folder, "netplay_main.java", "Main")
    else:
        command = netplay(checkout, folder, "netplay_binary.java", "handlers.Main")
    shown = shlex.join(command).replace("'{port}'", "{port}")
    print("python interop/try.py", options.name, "--", shown)


if __name__ == "__main__":
    main()
