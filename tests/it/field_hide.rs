//! Field cases: hidden and protected names, present at launch.

use super::field_common::{Case, MODES};

/// Editors and git on the host see no stand-ins for hidden names, neither while it runs nor after a kill.
/// <https://github.com/anthropics/claude-code/issues/83497>
#[test]
fn no_stand_ins_appear_in_the_project() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            git init -q; mkdir sub; echo S >sub/.env; state() { find . -path ./.git/objects -prune -o -printf '%p %y %s %i %m %T@ %C@\n' | sort; }
            state >$T/before
            for end in TERM KILL; do
                rm -f $T/out/up
                $AB --rw $T/p --scratch $T/out --hide .zshrc --hide .env --hide '**/*.pem' --hide sub/none -- sh -c "touch $T/out/up; exec sleep 30" & p=$!
                await '[ -e $T/out/up ]'
                state | cmp $T/before && echo during; kill -$end $p; wait $p 2>/dev/null; state | cmp $T/before && echo after
            done
            "#,
        );
        ran.prints("during\nafter\nduring\nafter\n");
    }
}

/// A hidden file never reads as an empty one with success, nor does a hidden directory list as empty.
/// <https://github.com/FerroxLabs/wayland/issues/1078>
#[test]
fn hidden_is_not_empty() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo S >.env; mkdir sec; echo S >sec/k; ln -s .env l
            tricks='cat .env; echo $?; cat <.env; echo $?; ls sec; echo $?; cat sec/k; echo $?; cat l; echo $?; python3 -c "open(\".env\").read()"; echo $?; dd if=.env status=none; echo $?; echo sec/*'
            $AB --rw $T/p --hide .env --hide sec -- sh -c "$tricks"
            sh -c "$tricks" | tr '\n' ' '
            "#,
        );
        let out = ran.lines();
        let statuses: Vec<_> = out.iter().take(7).collect();
        assert!(statuses.len() == 7 && statuses.iter().all(|s| ["1", "2"].contains(&s.as_str())), "{mode}: {ran}");
        assert_eq!(out[7], "sec/*", "{mode}: {ran}");
        assert_eq!(out[8], "S 0 S 0 k 0 S 0 S 0 0 S 0 sec/k ", "twin: {mode}: {ran}");
    }
}

/// One .env and one key for each package of a monorepo: all covered by the default lists, at any depth.
/// <https://github.com/safedep/pmg/issues/445>
#[test]
fn secrets_of_nested_packages() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p packages/app/cfg a/b/c/d/e/f; echo SECRET >packages/app/.env; echo SECRET >packages/app/cfg/prod.key; echo SECRET >a/b/c/d/e/f/.env.local; echo ok >a/b/c/d/e/f/x
            tricks='grep -r SECRET . ; find . -name "*.key" -exec cat {} +; find . -name ".env*" -exec cat {} +; cat a/b/c/d/e/f/x'
            $AB --rw $T/p -- sh -c "$tricks"; sh -c "$tricks" | grep -c SECRET
            $AB --ro $T/p --rw $T/out --chdir $T/out -- sh -c "cd $T/p && $tricks"
            "#,
        );
        ran.prints("ok\n6\nok\n");
    }
}

/// Hiding every dotfile would break linters and ignore rules: the harmless ones stay, `strict` hides them too.
/// <https://github.com/anthropic-experimental/sandbox-runtime/issues/159>
#[test]
fn harmless_dotfiles() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo ignored >.gitignore; echo '{}' >.eslintrc.json; echo root >.editorconfig; echo S >.env; echo S >.other; mkdir .github; echo ci >.github/w.yml; echo E=1 >.env.example
            $AB --rw $T/p -- sh -c 'cat .gitignore .eslintrc.json .editorconfig .env.example; ls .github; cat .env .other'; echo $?
            $AB --rw $T/p -p strict -- cat .gitignore; echo $?
            $AB --rw $T/p -p strict --grant .gitignore -- cat .gitignore; echo $?
            agentbox explain --rw $T/p -- true | grep -cF -e .env -e .other | sed 's/[1-9].*/shown/'
            "#,
        );
        ran.prints("ignored\n{}\nroot\nE=1\nw.yml\n1\n1\nignored\n0\nshown\n");
    }
}

/// Secrets whose names have no dot in front; names that only look alike stay.
/// <https://github.com/trailofbits/claude-code-config/issues/48>
#[test]
fn secrets_without_a_dot() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            for f in id_ed25519 id_rsa ID_RSA prod.key PROD.KEY tls.pem a.p12 vault.kdbx service-account.json credentials.json credentials secrets.yaml \
                terraform.tfstate prod.tfvars x.keystore kubeconfig prod.env .npmrc .netrc .pypirc .htpasswd .Env; do echo SECRET >$f; done
            for f in monkey.txt tokens.rs secrets.py credentials.rs id_ed25519.pub keys.md env.ts turkey; do echo ok >$f; done
            $AB --rw $T/p -- sh -c 'for f in * .[a-zA-Z]*; do grep -H . $f; done' 2>/dev/null | sort
            cat * .[a-zA-Z]* | sort | uniq -c | tr -s ' \n' ' '
            "#,
        );
        let open = [
            "credentials.rs",
            "env.ts",
            "id_ed25519.pub",
            "keys.md",
            "monkey.txt",
            "secrets.py",
            "tokens.rs",
            "turkey",
        ];
        let want: String = open.iter().map(|f| format!("{f}:ok\n")).collect();
        ran.prints(&(want + " 22 SECRET 8 ok "));
    }
}

/// A development server needs its .env: granted for this run by name, said, and denied again afterwards.
/// <https://github.com/safedep/pmg/issues/232>
#[test]
fn secret_granted_for_one_run() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo K=1 >.env; echo S >.env.prod
            $AB --rw $T/p --grant .env --report $T/r.json -- sh -c 'cat .env; cat .env.prod; echo K=2 >.env'; echo $?
            grep -c '"[^"]*\.env[":]' $T/r.json | sed 's/[1-9].*/recorded/'; cat .env
            $AB --rw $T/p -- cat .env; echo $?
            $AB --rw $T/p --grant .env:rw -- sh -c 'echo K=3 >.env && cat .env'; echo $?; cat .env
            "#,
        );
        let after = if mode == "--live" { "K=3" } else { "K=1" };
        let out = ran.lines();
        assert_eq!(out[0], "K=1", "{mode}: {ran}");
        assert_ne!(out[1], "0", "{mode}: a read-only grant was written: {ran}");
        assert_eq!(out[2..], ["recorded", "K=1", "1", "K=3", "0", after], "{mode}: {ran}");
    }
}

/// Renames, links, truncation and removal do not get around a protected name where a plain write would fail.
/// <https://github.com/multikernel/sandlock/pull/155>
#[test]
fn no_way_around_a_protected_name() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            echo S >.env; mkdir .hidden; echo S >.hidden/f; echo P >package.json; echo x2 >x2
            printf '[filesystem]\nrw=["."]\nfreeze=["package.json"]\n' >$T/freeze.toml
            tricks='for f in .env .hidden/f package.json; do echo evil >x; mv -f x $f; ln -f x2 $f; ln -sf x2 $f; truncate -s0 $f; echo evil >>$f; rm -f $f; mv $f away; ln $f again; cp x2 $f; done
                rm -rf .hidden; mv .hidden gone; cat package.json; cat again away gone/f; chmod 0 package.json; touch -d 2001-01-01 package.json'
            $AB -p default -p $T/freeze.toml -- sh -c "$tricks" >$T/inside; head -1 $T/inside; grep -c S $T/inside
            cat .env .hidden/f package.json; find . -newermt 2001-02-01 -name package.json -perm -400
            sh -c "$tricks" >/dev/null; cat .env .hidden/f package.json 2>/dev/null | grep -c -e S -e P
            "#,
        );
        ran.prints("P\n0\nS\nS\nP\n./package.json\n0\n");
    }
}

/// `rm -rf` of a hidden .git, and of all else, leaves the history whole.
/// <https://github.com/anthropic-experimental/sandbox-runtime/issues/545>
#[test]
fn history_survives_removal_of_everything() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            git init -q; echo a >a; git add -A; git -c user.name=n -c user.email=e commit -qm i; (cd .git && find . -type f -exec sha1sum {} + | sort) >$T/before
            $AB --rw $T/p -- sh -c 'ls .git; echo $?; rm -rf .git; mv .git elsewhere; rm -rf -- * .[!.]*; ls'
            (cd .git && find . -type f -exec sha1sum {} + | sort) | cmp - $T/before && echo same; git fsck 2>&1; git log --oneline | wc -l; ls
            "#,
        );
        let out = ran.lines();
        assert_ne!(out[0], "0", "{mode}: the hidden .git can be listed: {ran}");
        let after: &[&str] = if mode == "--live" { &["same", "1"] } else { &["same", "1", "a"] };
        assert_eq!(out[1..], *after, "{mode}: {ran}");
    }
}

/// Key stores, other projects and histories in HOME are not there; HOME is an empty scratch place that ends with the run.
/// <https://github.com/anthropic-experimental/sandbox-runtime/issues/2>
#[test]
fn home_is_empty_scratch() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            mkdir -p $HOME/.ssh $HOME/.aws $HOME/work/other; for f in .ssh/id_rsa .aws/credentials work/other/x .bash_history .netrc; do echo S >$HOME/$f; done
            tricks='cat ~/.ssh/id_rsa ~/.aws/credentials ~/work/other/x ~/.bash_history ~/.netrc; ls -A ~'
            $AB --rw $T/p -- sh -c "$tricks; cd && echo w >w && mkdir -p .cache/x && cat w && pwd"; echo $?
            $AB --rw $T/p -- sh -c "ls -A ~"; ls -A $HOME | tr '\n' ' '; sh -c "$tricks" | grep -c '^S'
            "#,
        );
        ran.prints(&format!("w\n{}/home\n0\n.aws .bash_history .netrc .ssh work 5\n", ran.t.display()));
    }
}

/// A repository that the command makes itself is its own: init, commit and clone work although .git is a hidden name.
/// <https://github.com/openai/codex/pull/18446>
#[test]
fn repository_made_inside() {
    for mode in MODES {
        let ran = Case::new().run(
            mode,
            r#"
            $AB --rw $T/p -- sh -c 'mkdir n && cd n && git init -q && git config user.email a@b && git config user.name a && echo a >a && git add a &&
                git commit -qm i && git log --oneline | wc -l && cd .. && git clone -q n m && ls m && git -C m status --porcelain | wc -l'; echo $?; ls
            "#,
        );
        ran.prints(if mode == "--live" { "1\na\n0\n0\nm\nn\n" } else { "1\na\n0\n0\n" });
    }
}
