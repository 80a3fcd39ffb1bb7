//! The second build: a project that was built outside is built, installed and tested again inside, offline, with the
//! default profile. This is what a hidden `.bin`, `.fingerprint` or `.cargo-lock` breaks.

use super::field_common::{Case, MODES, cargo, need};

/// npm: a dependency from a directory, a binary in node_modules/.bin, a test script that uses both.
#[test]
fn second_npm_install_and_test() {
    if !need(&["npm", "node"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            export npm_config_update_notifier=false; mkdir -p dep test; printf '#!/usr/bin/env node\nconsole.log("bin " + require("dep"))\n' >dep/cli.js; chmod +x dep/cli.js; echo 'module.exports = 1' >dep/index.js
            echo '{"name":"dep","version":"1.0.0","main":"index.js","bin":{"depbin":"cli.js"}}' >dep/package.json; (cd dep && npm pack --silent >/dev/null && mv dep-1.0.0.tgz ..)
            echo '{"name":"a","version":"1.0.0","scripts":{"test":"depbin && node --test test/","build":"cp dep/index.js dist.js"},"dependencies":{"dep":"file:dep-1.0.0.tgz"}}' >package.json
            echo 'const t=require("node:test");t("one",()=>require("node:assert").equal(require("dep"),1))' >test/one.test.js; echo cache=$HOME/.npm-mine >.npmrc
            npm install --no-audit --no-fund >&2 && npm test >&2; echo $?
            $AB --rw $T/p -- sh -c '{ npm test && npm install --no-audit --no-fund --offline && npm test && npm run build; } >&2; echo $?; cat dist.js; ls node_modules/.bin'
            $AB --rw $T/p -- sh -c 'rm -rf node_modules && npm install --no-audit --no-fund --offline >&2 && npm test >&2; echo $?'
            npm test >&2; echo $?
            "#,
        );
        ran.prints("0\n0\nmodule.exports = 1\ndepbin\n0\n0\n");
    }
}

/// cargo: a path dependency, a build script, a warm target directory, then a change.
#[test]
fn second_cargo_build_and_test() {
    let Some(cargo) = cargo() else { return };
    for mode in MODES {
        let ran = Case::new().with_cargo(&cargo).run(
            mode,
            r#"
            export PATH=$(dirname $CARGO):$PATH; cargo init -q --name a --vcs none; cargo init -q --lib --name b --vcs none b; mkdir -p .cargo; printf '[env]\nFROM_CONFIG = "yes"\n' >.cargo/config.toml
            printf '[package]\nname="a"\nversion="0.1.0"\nedition="2021"\n[dependencies]\nb={path="b"}\n' >Cargo.toml; echo 'fn main(){println!("cargo:rustc-env=BUILT=1")}' >build.rs
            echo 'fn main(){println!("{} {} {}",env!("BUILT"),env!("FROM_CONFIG"),std::any::type_name::<fn()>().len()>0)} #[test] fn t(){}' >src/main.rs
            cargo test -q --offline >&2 && cargo build -q --offline; echo $?
            box() { $AB --rw $T/p $GRANT -- sh -c "$1"; }
            box 'cargo build --offline 2>&1 | grep -c Compiling; cargo test -q --offline >&2; echo $?; echo "// more" >>src/main.rs; cargo build --offline 2>&1 | grep -c Compiling; ./target/debug/a'
            box 'cargo clean -q; echo $?; cargo build -q --offline; echo $?; ./target/debug/a'
            cargo build -q --offline; echo $?
            "#,
        );
        ran.prints("0\n0\n0\n1\n1 yes true\n0\n0\n1 yes true\n0\n");
    }
}

/// pip and venv: an environment made outside is used, installed into and made anew inside.
#[test]
fn second_pip_install_and_venv() {
    if !need(&["/usr/bin/python3"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            cat >$T/wheel.py <<'PY'
import zipfile,sys
for v in ('1','2'):
  with zipfile.ZipFile(f'demo-{v}-py3-none-any.whl','w') as z:
    i=f'demo-{v}.dist-info/'
    z.writestr('demo/__init__.py',f'V={v}\ndef main(): print("demo",V)\n')
    z.writestr(i+'METADATA',f'Metadata-Version: 2.1\nName: demo\nVersion: {v}\n')
    z.writestr(i+'WHEEL','Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    z.writestr(i+'entry_points.txt','[console_scripts]\ndemo = demo:main\n')
    z.writestr(i+'RECORD',f'demo/__init__.py,,\n{i}METADATA,,\n{i}WHEEL,,\n{i}entry_points.txt,,\n{i}RECORD,,\n')
PY
            /usr/bin/python3 $T/wheel.py; pip="pip --disable-pip-version-check install -q --no-index --no-deps"
            /usr/bin/python3 -m venv .venv && .venv/bin/$pip ./demo-1-py3-none-any.whl && .venv/bin/demo; echo $?
            $AB --rw $T/p -- sh -c ". .venv/bin/activate; demo; $pip --force-reinstall ./demo-1-py3-none-any.whl; echo \$?; $pip ./demo-2-py3-none-any.whl; echo \$?; demo; python -c 'import pip._vendor.certifi as c; open(c.where()).read(1)'; echo \$?"
            $AB --rw $T/p -- sh -c "/usr/bin/python3 -m venv --clear .venv && .venv/bin/$pip ./demo-2-py3-none-any.whl && .venv/bin/demo"
            $AB --rw $T/p -- sh -c "/usr/bin/python3 -m venv venv2 && venv2/bin/$pip ./demo-1-py3-none-any.whl && venv2/bin/demo"
            .venv/bin/demo
            "#,
        );
        let after = if mode == "--live" { 2 } else { 1 };
        ran.prints(&format!("demo 1\n0\ndemo 1\n0\n0\ndemo 2\n0\ndemo 2\ndemo 1\ndemo {after}\n"));
    }
}

/// javac, jar and maven's own start: a second compilation, and a reactor that validates offline.
#[test]
fn second_java_build() {
    if !need(&["java", "javac", "jar", "mvn"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p src/p target/classes .mvn; echo 'package p; public class A { public static void main(String[] a) { System.out.println("java " + B.v); } }' >src/p/A.java; echo 'package p; class B { static int v = 1; }' >src/p/B.java
            echo '<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId><version>1</version><packaging>pom</packaging></project>' >pom.xml
            build='javac -d target/classes src/p/*.java && jar cfe target/a.jar p.A -C target/classes . && java -jar target/a.jar'
            sh -c "$build" && mvn -Dmaven.repo.local=$HOME/outside -B -o -q validate >&2; echo $?
            $AB --rw $T/p -- sh -c "$build; echo \$?; sed -i 's/v = 1/v = 2/' src/p/B.java; $build; mvn -B -o -q validate >&2; echo \$?; rm -rf target; mkdir -p target/classes; $build"
            "#,
        );
        ran.prints("java 1\n0\njava 1\n0\njava 2\n0\njava 2\n");
    }
}

/// make and gcc: only what changed is built again, for times and links show through.
#[test]
fn second_make_build() {
    if !need(&["make", "gcc"]) {
        return;
    }
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            printf 'all: a\na: a.o b.o\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -c -o $@ $<\n' >Makefile; echo 'int b(void); int main(){return b();}' >a.c; echo 'int b(void){return 0;}' >b.c; make >&2; echo $?
            $AB --rw $T/p -- sh -c 'make -q; echo $?; sleep 0.02; echo "int b(void){return 3;}" >b.c; make | grep -c gcc; ./a; echo $?; make -q; echo $?'
            "#,
        );
        ran.prints("0\n0\n2\n3\n0\n");
    }
}
