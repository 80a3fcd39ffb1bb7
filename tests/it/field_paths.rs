//! Field cases: paths, links and nested rules.

use super::field_common::{Case, MODES};

/// The resolver's file is a link (or two) into a tree the box does not show: names still resolve, the tree stays shut.
/// <https://github.com/fencesandbox/fence/issues/31>
#[test]
fn resolver_file_behind_links() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir $T/etc; cp -a /etc/. $T/etc 2>/dev/null; rm -f $T/etc/resolv.conf; open_up
            private <<'EOS'
            mount --bind $T/etc /etc; mount -t tmpfs t /run; mkdir -p /run/x/y
            echo "nameserver 127.0.0.9" >/run/x/stub; echo s >/run/x/secret; ln -s ../x/stub /run/x/y/hop
            for target in /run/x/stub /run/x/hop ../run/x/y/../stub; do
                ln -sfn /run/x/stub /run/x/hop; ln -sfn $target /etc/resolv.conf
                drop $AB --net host --rw $T/p -- sh -c 'cat /etc/resolv.conf; cat /run/x/secret; ls /run/x | grep -c secret'
            done
            mkdir /run/disk; mount -t tmpfs u /run/disk; echo "nameserver 127.0.0.8" >/run/disk/r; ln -sfn /run/disk/r /etc/resolv.conf
            drop $AB --net host --rw $T/p -- cat /etc/resolv.conf
EOS
            "#,
        );
        ran.prints(&("nameserver 127.0.0.9\n0\n".repeat(3) + "nameserver 127.0.0.8\n"));
    }
}

/// A PATH entry is a chain of links into another tree: followed to the end where granted, named where it dangles.
/// <https://github.com/GreyhavenHQ/greywall/pull/93>
#[test]
fn path_entry_through_links() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p $T/store/t/bin $T/cur; printf '#!/bin/sh\necho tool\n' >$T/store/t/bin/tool; chmod +x $T/store/t/bin/tool
            ln -s $T/store/t $T/cur/a; ln -s a $T/cur/b; export PATH=$T/cur/b/bin:$PATH
            $AB --ro $T/store --ro $T/cur --rw $T/p -- tool; echo $?
            $AB --ro $T/cur --rw $T/p -- tool 2>$T/err; echo $?; grep -c $T/cur/b/bin $T/err | sed 's/[1-9].*/said/'
            "#,
        );
        ran.prints("tool\n0\n127\nsaid\n");
    }
}

/// A granted path is itself a link: its target is granted once, and both names work.
/// <https://github.com/GreyhavenHQ/greywall/issues/91>
#[test]
fn granted_path_is_a_link() {
    let script = r#"
        mkdir $T/real; echo 0 >$T/real/o; ln -s real $T/link; ln -s real/o $T/olink
        $AB --rw $T/link --chdir $T/link -- sh -c "echo 1 >$T/link/a; echo 2 >$T/real/b; cat $T/link/b $T/real/a"; echo $?; cat $T/real/? | tr '\n' ' '
        $AB --ro $T/olink --rw $T/p -- sh -c "cat $T/olink $T/real/o; ls $T/real"; echo $?
        "#;
    Case::new().live(script).prints("2\n1\n0\n1 2 0 0\n0\no\n0\n");
    Case::new().dry(script).prints("2\n1\n0\n0 0\n0\no\n0\n");
}

/// A link in a cloned repository leads out: neither read nor write follows it, and nothing is made where it dangles.
/// <https://github.com/CopilotKit/OpenBot/issues/73>
#[test]
fn link_inside_a_root_leads_outside() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo orig >$T/victim; ln -s $T/victim l; ln -s $T/out d; ln -s $T/new dang; ln -s /proc/1/root$T/victim magic
            ln -s ../../../../../../../..$T/victim up
            tricks='cat l; echo $?; for f in l d/f dang magic up; do (echo x >$f) 2>/dev/null && echo WROTE $f; done; cat magic'
            $AB --rw $T/p -- sh -c "$tricks" | grep -v WROTE
            cat $T/victim; ls $T/out; ls $T/new; echo twin; sh -c "$tricks" | grep -c WROTE | sed 's/[45]/most/'
            "#,
        );
        // What a link next to the project names lies in the box's own /var/tmp: a write there may succeed, and is gone.
        ran.prints("1\norig\ntwin\nmost\n"); // an ordinary user is refused the magic link anyway
    }
}

/// A protected dotfile is a link to nowhere or to a file elsewhere: hidden like any other, the link stays.
/// <https://github.com/anthropic-experimental/sandbox-runtime/issues/185>
#[test]
fn hidden_name_is_a_link() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            ln -s /nonexistent/x .bashrc; ln -s /etc/hostname .zshrc; echo r >real; ln -s real .inside; ln -s loop loop
            $AB --rw $T/p --hide .bashrc --hide .zshrc --hide .inside --hide loop -- sh -c 'cat .zshrc .bashrc .inside loop; echo alive'; echo $?
            readlink .bashrc .zshrc .inside loop
            "#,
        );
        ran.prints("alive\n0\n/nonexistent/x\n/etc/hostname\nreal\nloop\n");
    }
}

/// A rule hides what is not there: no failure, and nothing is made to hold its place.
/// <https://github.com/fencesandbox/fence/issues/13>
#[test]
fn hide_rule_for_nothing() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            $AB --rw $T/p --hide $HOME/.aws --hide $HOME/.ssh/id_rsa --hide $T/p/none/x --hide none -- true; echo $?; ls -A $HOME $T/p
            "#,
        );
        ran.prints(&format!("0\n{t}/home:\n\n{t}/p:\n", t = ran.t.display()));
    }
}

/// A grant for what is not there yet: fine below a writable root, refused by name elsewhere, a notice when optional.
/// <https://github.com/nolabs-ai/nono/issues/1252>
#[test]
fn grant_for_a_path_to_come() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            $AB --rw $T/p --ro $T/nope -- touch $T/p/ran 2>$T/err; echo $?; grep -c $T/nope $T/err | sed 's/[1-9].*/named/'
            $AB --rw $T/p --rw $T/p/dist -- sh -c 'mkdir -p dist && touch dist/a && ls dist'; echo $?
            printf '[filesystem]\nrw=["."]\nro=[{path="%s/later", optional=true}]\n' $T >$T/opt.toml
            $AB -p $T/opt.toml -- echo ran 2>$T/err; echo $?; grep -c $T/later $T/err
            printf '[filesystem]\nrw=["."]\nro=["%s/later"]\n' $T >$T/must.toml
            $AB -p $T/must.toml -- echo ran 2>$T/err; echo $?; grep -c $T/later $T/err | sed 's/[1-9].*/named/'
            ls $T/p
            "#,
        );
        let after = if mode == "--live" { "dist\n" } else { "" };
        ran.prints(&format!("125\nnamed\na\n0\nran\n0\n1\n125\nnamed\n{after}"));
    }
}

/// Blanks, line ends, unicode, quotes and glob characters in the project's path.
/// <https://github.com/google/nsjail/pull/311>
#[test]
fn strange_characters_in_paths() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            d=$T/$'sp ace\nnl ünï [x]{a,b}*$@:\\"'; mkdir "$d" "$T/x"; echo S >"$d/.env"; echo o >"$d/old"; cd "$d"; mkdir 'h[1]' h1; echo b >'h[1]/f'; echo a >h1/f
            $AB --rw "$d" --hide .env --hide "$d/h[1]" -- sh -c 'echo w >f; cat f; cat .env; pwd; cat h1/f; cat h\[1\]/f; ls' >$T/got; echo $?
            printf 'w\n%s\na\nf\nh1\nold\n' "$PWD" >$T/want; grep -v '^h\[1\]$' $T/got | cmp - $T/want && echo same
            agentbox explain --rw "$d" -- true >$T/plan; echo $?; grep -cF 'ace\nnl ' $T/plan | sed 's/[1-9].*/shown/'; grep -c '^nl ' $T/plan
            ls "$d" | grep -c f
            "#,
        );
        ran.prints(&format!("0\nsame\n0\nshown\n0\n{}\n", u8::from(mode == "--live")));
    }
}

/// A read-only tree stays read-only in the mounts below it, whatever their names; an explicit grant below still works.
/// <https://github.com/google/nsjail/issues/125>
#[test]
fn submounts_of_a_read_only_root() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir $T/ref/sub "$T/ref/a b"; export P=$T/ref; open_up
            private <<'EOS'
            mount -t tmpfs -o mode=777 t $P/sub; mount -t tmpfs -o mode=777 t "$P/a b"; echo in >$P/sub/in
            tricks='for f in "$P/x" "$P/sub/x" "$P/a b/x"; do touch "$f" 2>&1; done; cat "$P/sub/in"'
            drop $AB --env P --ro $P --rw $T/p -- sh -c "$tricks" | sed 's/.*Read-only.*/ro/'
            drop $AB --env P --ro $P --rw $P/sub --rw $T/p -- sh -c "$tricks" | sed 's/.*Read-only.*/ro/'
            ls $P/sub; echo twin; drop sh -c "$tricks"
EOS
            "#,
        );
        let written = if mode == "--live" { "in\nx\n" } else { "in\n" };
        ran.prints(&format!("ro\nro\nro\nin\nro\nro\nin\n{written}twin\nin\n"));
    }
}

/// Deny inside allow, allow inside deny: the deepest path wins, whatever the order of the flags.
/// <https://github.com/anthropic-experimental/sandbox-runtime/issues/193>
#[test]
fn nested_rules_in_every_order() {
    let flags = ["--ro $T/p", "--hide $T/p/h", "--rw $T/p/h/w", "--ro $T/p/h/w/deep"];
    let mut script = String::from("mkdir -p h/w/deep; echo S >h/s; echo r >top\n");
    for order in permutations(&flags) {
        script += &format!(
            "rm -f h/w/ok; $AB {} -- sh -c 'cat h/s top; for f in h/w/ok h/w/deep/no top h/no; do (: >>$f) 2>/dev/null && echo $f; done' 2>/dev/null | tr '\\n' ' '; echo $?\n",
            order.join(" ")
        );
    }
    for mode in MODES {
        let ran = Case::new().run(mode, &(script.clone() + "find . -type f | sort | tr '\\n' ' '; cat h/s"));
        let after = if mode == "--live" { "./h/s ./h/w/ok ./top S\n" } else { "./h/s ./top S\n" };
        ran.prints(&("r h/w/ok 0\n".repeat(24) + after));
    }
    let script = r#"
        echo 1 >a; for flags in "--rw $T/p/a --ro $T/p/a" "--ro $T/p/a --rw $T/p/a"; do $AB --rw $T/p $flags -- sh -c 'cat a; echo 2 >a' || echo refused; done
        for flags in "--hide $T/p/a --ro $T/p/a" "--ro $T/p/a --hide $T/p/a"; do $AB --rw $T/p $flags -- cat a || echo refused; done"#;
    for mode in MODES {
        Case::new().run(mode, script).prints("1\nrefused\n1\nrefused\nrefused\nrefused\n");
    }
}

fn permutations<'a>(items: &[&'a str]) -> Vec<Vec<&'a str>> {
    let Some((first, rest)) = items.split_first() else { return vec![vec![]] };
    let mut all = Vec::new();
    for shorter in permutations(rest) {
        for at in 0..=shorter.len() {
            let mut longer = shorter.clone();
            longer.insert(at, first);
            all.push(longer);
        }
    }
    all
}
